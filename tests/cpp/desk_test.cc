// Errands. They start when their inputs are ready, and end when they are told to, by any thread and
// in any order. Failures, dropped errands and a closed desk reach what depends on them. The exit
// status is 1 when a promise is broken.

#include "program/desk.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "front.h"

namespace {

using gemel::Desk;
using gemel::Engine;
using gemel::Errand;
using gemel::Failure;
using gemel::Tensor;
using std::chrono::milliseconds;

constexpr int64_t kSize = 100;

std::unique_ptr<Tensor> row() {
  auto tensor = std::make_unique<Tensor>();
  const int64_t extents[] = {kSize};
  tensor->make(gemel::kFloat32, extents, 1, 0);
  return tensor;
}

// The result is the sum of the inputs, plus one.
void do_it(Errand& errand) {
  auto* out = static_cast<float*>(errand.outputs[0].data);
  for (int64_t i = 0; i < kSize; ++i) {
    out[i] = 1;
    for (const Errand::Part& part : errand.inputs) out[i] += static_cast<float*>(part.data)[i];
  }
  errand.end();
}

// Two chains of errands. Each thread takes whatever comes and ends up to two errands at a time.
void chains(int workers) {
  Engine::get().configure(workers, false, 0, 0);
  PlainFront front;
  for (int round = 0; round < 50; ++round) {
    const auto desk = Desk::make();
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&desk] {
        while (auto errand = desk->take(milliseconds(10000))) {
          auto second = desk->take(milliseconds(0));
          if (second != nullptr) do_it(*second);
          do_it(*errand);
        }
      });
    }
    std::vector<std::unique_ptr<Tensor>> rows;
    for (int i = 0; i < 2; ++i) {
      rows.push_back(row());
      desk->issue(0, "first", {}, {rows.back().get()}, front);
    }
    for (int i = 0; i < 20; ++i) {
      Tensor* before = rows[rows.size() - 2].get();
      rows.push_back(row());
      desk->issue(1, "next", {before}, {rows.back().get()}, front);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      Engine::get().wait(rows[i]->storage);
      const auto* data = reinterpret_cast<const float*>(rows[i]->data());
      check(data[kSize - 1] == static_cast<float>(i / 2 + 1), "each errand adds one to its input");
    }
    desk->close(std::make_shared<const Failure>("ValueError", "closed"));
    for (std::thread& thread : threads) thread.join();
  }
}

bool failed_with(const Tensor& tensor, const std::string& text) {
  Engine::get().wait(tensor.storage);
  const gemel::FailurePointer failure = tensor.storage->failure();
  return failure != nullptr && failure->message.find(text) != std::string::npos;
}

void failures_reach_what_depends(int workers) {
  Engine::get().configure(workers, false, 0, 0);
  PlainFront front;
  for (int round = 0; round < 50; ++round) {
    const auto desk = Desk::make();
    auto told = row(), after = row(), dropped = row(), closed = row(), late = row();
    desk->issue(1, "told", {}, {told.get()}, front);
    desk->issue(2, "after", {told.get()}, {after.get()}, front);
    desk->take(milliseconds(10000))->end(std::make_shared<const Failure>("ValueError", "planted"));
    check(failed_with(*told, "planted") && failed_with(*after, "planted"),
          "a failed errand fails the results that depend on it");
    const auto news = desk->take(milliseconds(10000));
    check(news != nullptr && news->number == 2 && news->failure != nullptr,
          "an errand whose input failed is handed out with the failure");
    desk->issue(3, "dropped", {}, {dropped.get()}, front);
    desk->take(milliseconds(10000)).reset();
    check(failed_with(*dropped, "nobody did it"), "a dropped errand fails");
    desk->issue(4, "closed", {}, {closed.get()}, front);
    std::thread closing(
        [&desk] { desk->close(std::make_shared<const Failure>("ValueError", "closed")); });
    desk->issue(5, "late", {}, {late.get()}, front);
    check(failed_with(*closed, "closed") && failed_with(*late, "closed"),
          "the errands of a closed desk fail");
    closing.join();
  }
}

}  // namespace

int main() {
  for (int workers : {0, 1, 3}) {
    chains(workers);
    // Without workers, an errand starts only when a thread waits for it.
    if (workers > 0) failures_reach_what_depends(workers);
  }
  Engine::get().shut_down();
  std::printf(failures == 0 ? "desk: all right\n" : "desk: %d broken\n", failures);
  return failures == 0 ? 0 : 1;
}
