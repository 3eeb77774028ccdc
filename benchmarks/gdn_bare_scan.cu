// The smallest scan with the dependences of the reverse state scan, timed by gdn_bare_scan.py: two dependent products a
// chunk, and nothing stored.
//
//     Z = D K^T        D = decay D - Z K        D [V, K] float32 in registers, K [64, 128] bfloat16 a chunk
//
// A block is one warpgroup and 64 rows of V. Tiles of K arrive by cp.async, two stages, in the 128-byte swizzle.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

static __device__ __forceinline__ void product_64(float (&d)[32], const unsigned (&a)[4], unsigned long long b, int accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

static __device__ __forceinline__ void product_128(float (&d)[64], const unsigned (&a)[4], unsigned long long b, int accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}


static __device__ __forceinline__ unsigned pack(float x, float y) {
  __nv_bfloat162 both = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<unsigned *>(&both);
}

// Shared-memory matrix descriptor: 128-byte swizzle, offsets in bytes.
static __device__ __forceinline__ unsigned long long descriptor(unsigned address, unsigned leading, unsigned stride) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(leading >> 4) << 16 |
         (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}

// A [64, 128] tile as two halves of 64 columns, each 64 rows of 128 bytes.
static __device__ __forceinline__ void fetch(unsigned shared, const __nv_bfloat16 *tile) {
  for (int i = threadIdx.x; i < 1024; i += 128) {
    int row = i >> 4, piece = i & 15;
    unsigned to = shared + (piece >> 3) * 8192 + row * 128 + (((piece & 7) ^ (row & 7)) << 4);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(tile + row * 128 + piece * 8));
  }
  asm volatile("cp.async.commit_group;");
}

__global__ void __launch_bounds__(128) bare_scan(const __nv_bfloat16 *k, float *state, int chunks, float decay) {
  extern __shared__ __align__(1024) unsigned char memory[];
  unsigned base = ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
  const __nv_bfloat16 *head = k + (long long)blockIdx.y * chunks * 64 * 128;
  int lane = threadIdx.x & 31, row = (threadIdx.x >> 5) * 16 + (lane >> 2);
  float *mine = state + ((long long)blockIdx.y * gridDim.x + blockIdx.x) * 64 * 128 + row * 128 + (lane & 3) * 2;
  float d[64], z[32];
#pragma unroll
  for (int n = 0; n < 16; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) d[n * 4 + e] = mine[(e >> 1) * 8 * 128 + n * 8 + (e & 1)];
  fetch(base, head);
  for (int c = 0; c < chunks; c++) {
    unsigned tile = base + (c & 1) * 16384;
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    asm volatile("fence.proxy.async.shared::cta;");
    if (c + 1 < chunks) fetch(base + (~c & 1) * 16384, head + (long long)(c + 1) * 64 * 128);
    unsigned left[8][4];
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) left[j][e] = pack(d[j * 8 + e * 2], d[j * 8 + e * 2 + 1]);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int j = 0; j < 8; j++)
      product_64(z, left[j], descriptor(tile + (j >> 2) * 8192 + (j & 3) * 32, 16, 1024), j > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#pragma unroll
    for (int n = 0; n < 64; n++) d[n] *= decay;
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int n = 0; n < 32; n++) asm volatile("" : "+f"(z[n])::"memory");
    unsigned right[4][4];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) right[j][e] = pack(-z[j * 8 + e * 2], -z[j * 8 + e * 2 + 1]);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int j = 0; j < 4; j++) product_128(d, right[j], descriptor(tile + j * 2048, 8192, 1024), 1);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int n = 0; n < 64; n++) asm volatile("" : "+f"(d[n])::"memory");
  }
#pragma unroll
  for (int n = 0; n < 16; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) mine[(e >> 1) * 8 * 128 + n * 8 + (e & 1)] = d[n * 4 + e];
}

// k [heads, chunks, 64, 128] bfloat16, state [heads, tiles * 64, 128] float32, read and written. Returns a CUDA error.
extern "C" int launch(const void *k, void *state, int heads, int tiles, int chunks, float decay, void *stream) {
  bare_scan<<<dim3(tiles, heads), 128, 32768 + 1024, (cudaStream_t)stream>>>(
      (const __nv_bfloat16 *)k, (float *)state, chunks, decay);
  return (int)cudaGetLastError();
}
