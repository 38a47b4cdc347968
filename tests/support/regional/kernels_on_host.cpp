// The kernels of `chunks.cu`, compiled for the host: a block's threads are threads, and its
// blocks follow one another.

#include <barrier>
#include <memory>
#include <thread>
#include <vector>

struct uint4 {
    alignas(16) unsigned int x;
    unsigned int y, z, w;
};

struct Index {
    unsigned int x;
};

static thread_local Index threadIdx, blockIdx;
static std::barrier<>* block_barrier;

static void __syncthreads() { block_barrier->arrive_and_wait(); }

template <typename T> static T __ldcs(const T* at) { return *at; }
template <typename T> static void __stcs(T* at, T value) { *at = value; }

static void atomicAdd(unsigned long long* at, unsigned long long value) {
    __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

#include "chunks.cu"

template <typename Kernel> static void run(unsigned int blocks, Kernel kernel) {
    const auto barrier = std::make_unique<std::barrier<>>(THREADS);
    block_barrier = barrier.get();
    std::vector<std::thread> threads;
    for (unsigned int number = 0; number < THREADS; number++) {
        threads.emplace_back([=] {
            threadIdx.x = number;
            for (unsigned int block = 0; block < blocks; block++) {
                blockIdx.x = block;
                kernel();
                __syncthreads();
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
}

extern "C" void run_digest_chunks(unsigned int blocks, const Byte* data, Long nbytes,
                                  Long chunk_bytes, Word parts, const uint4* row_key,
                                  const Word* part_key, Long* digests) {
    run(blocks, [=] {
        digest_chunks(data, nbytes, chunk_bytes, parts, row_key, part_key, digests);
    });
}

extern "C" void run_copy_chunks(unsigned int blocks, const Byte* data, Long nbytes,
                                Long chunk_bytes, Word parts, const Word* numbers, Byte* out) {
    run(blocks, [=] { copy_chunks(data, nbytes, chunk_bytes, parts, numbers, out); });
}

extern "C" void run_number_changed(const Long* digests, const Long* before, Word chunks, Word room,
                                   Word* numbers) {
    run(1, [=] { number_changed(digests, before, chunks, room, numbers); });
}
