// Meetings. Each party gets what all parties bring, in whatever order and on whatever thread they
// join. Failures and cancelled meetings reach all parties. The exit status is 1 when a promise is
// broken.

#include "program/meeting.h"

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "front.h"

namespace {

using gemel::Engine;
using gemel::Failure;
using gemel::Meeting;
using gemel::Tensor;

class Write final : public gemel::Operation {
 public:
  Write(Tensor* tensor, float value, bool fails) : tensor_(tensor), value_(value), fails_(fails) {}
  void start(gemel::Completion done) override {
    auto* data = reinterpret_cast<float*>(tensor_->data());
    for (int64_t i = 0; i < tensor_->size; ++i) data[i] = value_;
    done(fails_ ? std::make_shared<const Failure>("ValueError", "planted") : nullptr);
  }

 private:
  Tensor* tensor_;
  float value_;
  bool fails_;
};

struct Party {
  Tensor given;
  Tensor taken;

  Party(int device, int parties) {
    const int64_t extents[] = {parties, 100};
    given.make(gemel::kFloat32, extents + 1, 1, device);
    taken.make(gemel::kFloat32, extents, 2, device);
  }
  void come(Meeting& meeting, int rank, bool fails = false) {
    auto write = std::make_unique<Write>(&given, static_cast<float>(rank + 1), fails);
    write->writes = {given.storage};
    write->microseconds = 100;
    Engine::get().issue(std::move(write));
    PlainFront front;
    meeting.join(rank, given, taken, front);
  }
  bool right(int parties) const {
    const auto* data = reinterpret_cast<const float*>(taken.data());
    for (int i = 0; i < parties * 100; ++i) {
      if (data[i] != static_cast<float>(i / 100 + 1)) return false;
    }
    return true;
  }
};

void everybody_gets_everything(int workers) {
  constexpr int kParties = 3;
  Engine::get().configure(workers, false, 0, 0);
  for (int round = 0; round < 200; ++round) {
    const auto meeting = Meeting::make(kParties, "meeting");
    std::vector<std::unique_ptr<Party>> parties;
    for (int i = 0; i < kParties; ++i) parties.push_back(std::make_unique<Party>(i, kParties));
    parties[round % kParties]->come(*meeting, round % kParties);
    check(meeting->open() && Meeting::any_open(), "a meeting is open while parties are missing");
    std::vector<std::thread> threads;
    for (int i = 1; i < kParties; ++i) {
      const int rank = (round + i) % kParties;
      threads.emplace_back([&, rank] { parties[rank]->come(*meeting, rank); });
    }
    for (std::thread& thread : threads) thread.join();
    check(!meeting->open() && !Meeting::any_open(), "a meeting ends when all parties have joined");
    for (const auto& party : parties) {
      Engine::get().wait(party->taken.storage);
      check(party->right(kParties), "each party gets what all brought, in order");
    }
    Engine::get().wait_all();
  }
}

void a_failure_reaches_all(bool first) {
  const auto meeting = Meeting::make(2, "meeting");
  Party one(0, 2), two(1, 2);
  one.come(*meeting, 0, first);
  Engine::get().wait(one.given.storage);
  two.come(*meeting, 1, !first);
  for (const Party* party : {&one, &two}) {
    Engine::get().wait(party->taken.storage);
    const gemel::FailurePointer failure = party->taken.storage->failure();
    check(failure != nullptr && failure->message == "planted",
          "one party's failure reaches all parties");
  }
  check(!Meeting::any_open(), "a failed meeting waits for no party");
  Engine::get().wait_all();
  Engine::get().take_unseen();
}

void a_meeting_is_called_off() {
  const auto meeting = Meeting::make(2, "meeting");
  Party one(0, 2), two(1, 2);
  one.come(*meeting, 0);
  Meeting::fail_open("too late", std::chrono::seconds{60});
  check(Meeting::any_open(), "a recent meeting is not cancelled");
  Meeting::fail_open("too late");
  check(!Meeting::any_open() && !meeting->open(), "a cancelled meeting is not open");
  two.come(*meeting, 1);
  for (const Party* party : {&one, &two}) {
    Engine::get().wait(party->taken.storage);
    check(party->taken.storage->failed(),
          "a cancelled meeting fails for earlier and later parties");
  }
  Engine::get().wait_all();
  Engine::get().take_unseen();
}

}  // namespace

int main() {
  for (const int workers : {0, 1, 3}) {
    everybody_gets_everything(workers);
    a_failure_reaches_all(true);
    a_failure_reaches_all(false);
    a_meeting_is_called_off();
  }
  if (failures == 0) std::printf("meetings: all promises kept\n");
  return failures == 0 ? 0 : 1;
}
