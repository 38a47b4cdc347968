// Kernels over the chunks of an array: what `holdfast.regions.state.arrays.device.digests` defines, and a
// copy of some of the chunks.
//
// No header is needed, so that NVRTC compiles it wherever CuPy works.

typedef unsigned char Byte;
typedef unsigned int Word;
typedef unsigned long long Long;

// As in `holdfast.regions.state.arrays.device.digests`: a part is 64 rows of 256 vectors of 16 bytes. Each
// thread has one column. One block has one part.
#define THREADS 256
#define ROWS 64
#define PASSES 4
#define PART_BYTES (ROWS * THREADS * 16)

// Vectors that a thread asks for before it uses the first one of them.
#define AHEAD 8

// Two words of content and two of the key: the inner step of NH.
__device__ static inline Long step(Word left, Word right, Word left_key, Word right_key) {
    return (Long)(Word)(left + left_key) * (Word)(right + right_key);
}

// Bytes [at, at + 16) of `data` as a vector, with zeros from `stop` on.
__device__ static inline uint4 vector_before(const Byte* data, Long at, Long stop) {
    Word words[4] = {0, 0, 0, 0};
    for (Word i = 0; i < 16 && at + i < stop; i++) {
        words[i / 4] |= (Word)data[at + i] << (i % 4 * 8);
    }
    uint4 vector;
    vector.x = words[0];
    vector.y = words[1];
    vector.z = words[2];
    vector.w = words[3];
    return vector;
}

__device__ static inline bool is_aligned(const Byte* data, Long at) {
    return ((Long)data + at) % 16 == 0;
}

__device__ static inline Long smaller(Long one, Long other) {
    return one < other ? one : other;
}

// Digests of all chunks of `data`.
//
// Blocks: chunks * parts, the parts of a chunk next to each other; THREADS threads each.
// `row_key`: ROWS + 2 vectors. `part_key`: parts * THREADS * 8 + 6 words.
// `digests`: PASSES for each chunk, zero before. Parts add to them in any order: sums modulo 2^64
// do not depend on it.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
digest_chunks(const Byte* data, Long nbytes, Long chunk_bytes, Word parts, const uint4* row_key,
              const Word* part_key, Long* digests) {
    __shared__ uint4 keys[ROWS + 2];
    __shared__ Long sums[PASSES][THREADS];
    const Word column = threadIdx.x;
    const Word chunk = blockIdx.x / parts, part = blockIdx.x % parts;
    for (Word i = column; i < ROWS + 2; i += THREADS) {
        keys[i] = row_key[i];
    }
    __syncthreads();

    const Long begin = chunk * chunk_bytes;
    const Long stop = smaller(begin + chunk_bytes, nbytes);
    const Long first = begin + (Long)part * PART_BYTES + column * 16;
    // The same for all threads of a block, so that they take one branch.
    const bool is_whole =
        begin + (Long)(part + 1) * PART_BYTES <= stop && is_aligned(data, begin);
    Long column_sums[PASSES] = {0, 0, 0, 0};
    uint4 key = keys[0], next = keys[1];
    for (Word row = 0; row < ROWS; row += AHEAD) {
        uint4 vectors[AHEAD];
        if (is_whole) {
#pragma unroll
            for (Word i = 0; i < AHEAD; i++) {
                const Byte* at = data + first + (Long)(row + i) * (THREADS * 16);
                vectors[i] = __ldcs((const uint4*)at);
            }
        } else {
#pragma unroll
            for (Word i = 0; i < AHEAD; i++) {
                vectors[i] = vector_before(data, first + (Long)(row + i) * (THREADS * 16), stop);
            }
        }
#pragma unroll
        for (Word i = 0; i < AHEAD; i++) {
            const uint4 v = vectors[i], last = keys[row + i + 2];
            column_sums[0] += step(v.x, v.y, key.x, key.y) + step(v.z, v.w, key.z, key.w);
            column_sums[1] += step(v.x, v.y, key.z, key.w) + step(v.z, v.w, next.x, next.y);
            column_sums[2] += step(v.x, v.y, next.x, next.y) + step(v.z, v.w, next.z, next.w);
            column_sums[3] += step(v.x, v.y, next.z, next.w) + step(v.z, v.w, last.x, last.y);
            key = next;
            next = last;
        }
    }

    // The sums of all columns are hashed in the same way, with a key of their own.
    const Word* words = part_key + ((Long)part * THREADS + column) * (2 * PASSES);
    for (Word pass = 0; pass < PASSES; pass++) {
        Long sum = 0;
        for (Word i = 0; i < PASSES; i++) {
            const Word at = 2 * (i + pass);
            sum += step((Word)column_sums[i], (Word)(column_sums[i] >> 32), words[at],
                        words[at + 1]);
        }
        sums[pass][column] = sum;
    }
    for (Word half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (column < half) {
            for (Word pass = 0; pass < PASSES; pass++) {
                sums[pass][column] += sums[pass][column + half];
            }
        }
    }
    if (column == 0) {
        for (Word pass = 0; pass < PASSES; pass++) {
            atomicAdd(&digests[(Long)chunk * PASSES + pass], sums[pass][0]);
        }
    }
}

__device__ static inline bool differ(const Long* one, const Long* other) {
    bool found = false;
    for (Word pass = 0; pass < PASSES; pass++) {
        found |= one[pass] != other[pass];
    }
    return found;
}

// Number the chunks whose digests differ, in order, for `copy_chunks`: at most `room` of them.
//
// One block. `numbers`: how many, then the chunks; 1 + room words.
extern "C" __global__ void __launch_bounds__(THREADS)
number_changed(const Long* digests, const Long* before, Word chunks, Word room, Word* numbers) {
    __shared__ Word counts[THREADS];
    const Word each = (chunks + THREADS - 1) / THREADS;
    const Word first = (Word)smaller((Long)threadIdx.x * each, chunks);
    const Word stop = (Word)smaller((Long)first + each, chunks);
    Word count = 0;
    for (Word chunk = first; chunk < stop; chunk++) {
        count += differ(digests + (Long)chunk * PASSES, before + (Long)chunk * PASSES);
    }
    counts[threadIdx.x] = count;
    __syncthreads();
    Word at = 0;
    for (Word thread = 0; thread < threadIdx.x; thread++) {
        at += counts[thread];
    }
    for (Word chunk = first; chunk < stop && at < room; chunk++) {
        if (differ(digests + (Long)chunk * PASSES, before + (Long)chunk * PASSES)) {
            numbers[1 + at++] = chunk;
        }
    }
    if (threadIdx.x == THREADS - 1) {
        numbers[0] = (Word)smaller(at, room);
    }
}

// Copy chunks to `out`, one after the other.
//
// Blocks: parts for as many chunks as there may be. `numbers`: as above. Only the last chunk of
// `data` may be shorter, and no chunk may follow it.
extern "C" __global__ void __launch_bounds__(THREADS)
copy_chunks(const Byte* data, Long nbytes, Long chunk_bytes, Word parts, const Word* numbers,
            Byte* out) {
    const Word number = blockIdx.x / parts, part = blockIdx.x % parts;
    if (number >= numbers[0]) {
        return;
    }
    const Long begin = numbers[1 + number] * chunk_bytes, shift = (Long)part * PART_BYTES;
    const Long size = smaller(begin + chunk_bytes, nbytes) - begin;
    const Long stop = smaller(shift + PART_BYTES, size);
    const Byte* source = data + begin;
    Byte* target = out + number * chunk_bytes;
    const bool vectors = is_aligned(source, 0) && is_aligned(target, 0);
    for (Long at = shift + threadIdx.x * 16; at < stop; at += THREADS * 16) {
        if (vectors && at + 16 <= stop) {
            __stcs((uint4*)(target + at), __ldcs((const uint4*)(source + at)));
        } else {
            for (Long i = at; i < at + 16 && i < stop; i++) {
                target[i] = source[i];
            }
        }
    }
}
