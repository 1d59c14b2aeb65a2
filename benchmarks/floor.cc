// Measures the limits of this machine: multiply-adds, and reading from the caches and from memory.
// Prints one line of JSON. Compiled with -O3 -march=native by machine.py.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#if defined(__AMX_BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__AMX_BF16__) || defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

// Two units with a latency of four cycles need eight chains; with sixteen registers, AVX2 holds no
// more than fourteen beside the factor and the term.
constexpr int kChains = 12;

typedef float Vector __attribute__((vector_size(kBytes)));

// Wall-clock time: no attempt can then look faster than the machine is. Processor time is sometimes
// counted short, and the best of many attempts would be one of those. Other programs do no harm, as
// long as they leave one attempt alone.
double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Independent chains of multiply-adds keep every unit busy. The indices are constants, so that the
// compiler keeps the chains in registers.
template <size_t... i>
void multiply_add(long rounds, float* sink, std::index_sequence<i...>) {
  Vector chain[sizeof...(i)];
  Vector factor = {}, term = {};
  factor += 0.999f;
  term += 1e-3f;
  ((chain[i] = term * float(i)), ...);
  for (long round = 0; round < rounds; ++round) {
    ((chain[i] = chain[i] * factor + term), ...);
  }
  Vector sum = {};
  ((sum += chain[i]), ...);
  *sink = sum[0];
}

// The rate in GFLOP/s of `work(rounds, sink)` on all threads at once; a round does `flops`.
template <typename Work>
double rate(int threads, long rounds, double flops, Work work) {
  double best = 0;
  for (int attempt = 0; attempt < 40; ++attempt) {
    std::vector<std::thread> pool;
    std::vector<float> sinks(threads * 64);
    double begin = seconds();
    for (int t = 0; t < threads; ++t) {
      pool.emplace_back([=, &sinks] { work(rounds, &sinks[t * 64]); });
    }
    for (auto& thread : pool) thread.join();
    double elapsed = seconds() - begin;
    best = std::max(best, flops * double(rounds) * threads / elapsed / 1e9);
  }
  return best;
}

double gflops(int threads) {
  return rate(threads, 4000000, 2.0 * kChains * (kBytes / 4), [](long rounds, float* sink) {
    multiply_add(rounds, sink, std::make_index_sequence<kChains>());
  });
}

// Products of bfloat16 in vectors; 0 if there is no instruction for them.
double pairs_gflops([[maybe_unused]] int threads) {
#if defined(__AVX512BF16__)
  return rate(threads, 2000000, 4.0 * kChains * 16, [](long rounds, float* sink) {
    const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
    __m512 chain[kChains] = {};
    for (long round = 0; round < rounds; ++round) {
      for (__m512& each : chain) {
        each = _mm512_dpbf16_ps(each, factor, factor);
        asm volatile("" : "+v"(each));
      }
    }
    __m512 sum = chain[0];
    for (const __m512& each : chain) sum = sum + each;
    *sink = sum[0];
  });
#else
  return 0;
#endif
}

// The same in tile registers.
double tiles_gflops([[maybe_unused]] int threads) {
#if defined(__AMX_BF16__) && defined(__linux__)
  constexpr long kRequestState = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestState, kTileData) != 0) return 0;
  return rate(threads, 200000, 4 * 2.0 * 16 * 16 * 32, [](long rounds, float* sink) {
    alignas(64) unsigned char configuration[64] = {1};
    for (int i = 0; i < 8; ++i) configuration[16 + 2 * i] = 64, configuration[48 + i] = 16;
    alignas(64) float sums[16 * 16];
    _tile_loadconfig(configuration);
    // The registers' contents do not matter: after this all are 0.
    for (long round = 0; round < rounds; ++round) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_release();
    *sink = sums[0];
  });
#else
  return 0;
#endif
}

// Products of bfloat16 by the best instruction, or of float32 if there is none.
double bfloat16_gflops(int threads, double plain) {
  return std::max({plain, pairs_gflops(threads), tiles_gflops(threads)});
}

// One pass over `count` vectors, with eight independent sums.
template <size_t... i>
Vector sum_of(const Vector* data, size_t count, std::index_sequence<i...>) {
  Vector sum[sizeof...(i)] = {};
  for (size_t position = 0; position < count; position += sizeof...(i)) {
    ((sum[i] += data[position + i]), ...);
  }
  Vector total = {};
  ((total += sum[i]), ...);
  return total;
}

// Reads the same `count` vectors `passes` times.
float read(const Vector* data, size_t count, int passes) {
  float result = 0;
  for (int pass = 0; pass < passes; ++pass) {
    result += sum_of(data, count, std::make_index_sequence<8>())[0];
    asm volatile("" ::: "memory");
  }
  return result;
}

// The bandwidth in GB/s of all threads together, each of which reads `bytes` of its own repeatedly.
double read_bandwidth(size_t bytes, int threads) {
  size_t count = bytes / kBytes / 8 * 8;
  std::vector<Vector*> data(threads);
  for (auto& each : data) {
    each = static_cast<Vector*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    for (size_t i = 0; i < count; ++i) each[i] = Vector{} + 1e-3f;
  }
  const int passes = std::max<size_t>(1, (64u << 20) / bytes);
  std::vector<float> sinks(threads * 64);
  double best = 0;
  for (int attempt = 0; attempt < 60; ++attempt) {
    std::vector<std::thread> others;
    double begin = seconds();
    for (int t = 1; t < threads; ++t) {
      others.emplace_back([&, t] { sinks[t * 64] += read(data[t], count, passes); });
    }
    sinks[0] += read(data[0], count, passes);
    for (auto& thread : others) thread.join();
    double elapsed = seconds() - begin;
    best = std::max(best, double(count) * kBytes * passes * threads / elapsed / 1e9);
  }
  volatile float sink = sinks[0];
  (void)sink;
  for (auto* each : data) std::free(each);
  return best;
}

// The arguments are more footprints in bytes at which to measure the read bandwidth of one core.
int main(int count, char** arguments) {
  int threads = std::max(1u, std::thread::hardware_concurrency());
  const double one = gflops(1), all = gflops(threads);
  std::printf(
      "{\"cores\": %d, \"gflops_one\": %.1f, \"gflops_all\": %.1f, \"bfloat16_one\": %.1f, "
      "\"bfloat16_all\": %.1f, \"l2_gbs\": %.1f, "
      "\"l3_gbs\": %.1f, \"memory_gbs\": %.1f, \"memory_gbs_all\": %.1f, \"reads_gbs\": [",
      threads, one, all, bfloat16_gflops(1, one), bfloat16_gflops(threads, all),
      read_bandwidth(656u << 10, 1), read_bandwidth(8u << 20, 1), read_bandwidth(256u << 20, 1),
      read_bandwidth(256u << 20, threads));
  for (int i = 1; i < count; ++i) {
    std::printf("%s%.1f", i > 1 ? ", " : "", read_bandwidth(std::atol(arguments[i]), 1));
  }
  std::printf("]}\n");
}
