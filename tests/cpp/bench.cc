// The cost of the engine itself, in nanoseconds; the best of several rounds.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "engine/engine.h"
#include "memory/memory.h"

namespace {

using gemel::Engine;
using gemel::Storage;

template <typename Body>
double best_nanoseconds(int rounds, int calls, Body body) {
  double best = 1e30;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) body();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count() / calls);
  }
  return best;
}

class Nothing : public gemel::Operation {
 public:
  void start(gemel::Completion done) override { done(); }
};

void hand_over(Storage* read, Storage* write) {
  auto operation = std::make_unique<Nothing>();
  operation->reads = {read};
  operation->writes = {write};
  operation->microseconds = 10;
  Engine::get().issue(std::move(operation));
}

void nothing(void*, int64_t) {}

}  // namespace

int main() {
  Engine& engine = Engine::get();
  Storage* storages[3] = {Storage::create(64, 0), Storage::create(64, 0), Storage::create(64, 0)};
  std::printf("inline, 2 reads + 1 write   %8.1f\n", best_nanoseconds(20, 100000, [&] {
                if (!engine.acquire_inline(storages, 2, storages + 2, 1, 1)) std::abort();
                engine.release_inline(storages, 2, storages + 2, 1);
              }));
  std::printf("ready                       %8.1f\n", best_nanoseconds(20, 100000, [&] {
                if (!Engine::ready(storages[0])) std::abort();
              }));
  std::printf("create + release, small     %8.1f\n",
              best_nanoseconds(20, 100000, [&] { Storage::create(64, 0)->release(); }));
  std::printf("allocate + release, 1 MiB   %8.1f\n", best_nanoseconds(20, 100000, [&] {
                gemel::memory::release(gemel::memory::allocate(1 << 20), 1 << 20);
              }));
  std::printf("hand-over, issue            %8.1f\n",
              best_nanoseconds(200, 500, [&] { hand_over(storages[0], storages[1]); }));
  engine.wait_all();
  std::printf("hand-over, to the end       %8.1f\n", best_nanoseconds(20, 1, [&] {
                                                       for (int call = 0; call < 1000; ++call)
                                                         hand_over(storages[0], storages[1]);
                                                       engine.wait(storages[1]);
                                                     }) / 1000);
  std::printf("hand-over, waiting each     %8.1f\n", best_nanoseconds(20, 1000, [&] {
                hand_over(storages[0], storages[1]);
                engine.wait(storages[1]);
              }));
  std::printf("hand-over, worker parked    %8.1f\n",
              best_nanoseconds(50, 1, [&] { hand_over(storages[0], storages[1]); }));
  std::printf("parallel, 2 empty tiles     %8.1f\n",
              best_nanoseconds(20, 1000, [&] { engine.parallel(2, nothing, nullptr); }));
  for (Storage* storage : storages) storage->release();
  engine.shut_down();
}
