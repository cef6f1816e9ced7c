// HIP's host runtime, hipBLAS, RCCL and roctx, as far as the project of 03.hipify_fixups needs them: every call writes
// itself to a tape. The host code is compiled with this as device code and executed on a virtual GPU, where it can reach
// nothing but the tape.
//
// On the tape a call is: its number, how many values follow, the values as 64 bits each. See hipify_host.py.

#pragma clang force_cuda_host_device begin

__shared__ long long *w2w_tape;   // where the next word goes
__shared__ long long w2w_handles;  // handles that have been made
__shared__ int w2w_fails;          // 1: every call returns an error; 2: RCCL's do; 3: launches fail
__shared__ int w2w_failed;         // a launch has failed, and nobody has asked since

namespace w2w {

template <class T>
inline long long word(T value) {
  long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
inline void word_to_tape(T value) {
  *w2w_tape++ = word(value);
}
template <class... T>
inline void call(int number, T... values) {
  word_to_tape((long long)number);
  word_to_tape((long long)sizeof...(values));
  (word_to_tape(values), ...);
}
// The first 16 characters.
inline void call_with_name(int number, const char *name) {
  long long words[2] = {0, 0};
  for (int i = 0; i < 16 && name[i]; ++i) words[i / 8] |= (long long)(unsigned char)name[i] << (i % 8 * 8);
  call(number, words[0], words[1]);
}
template <class Handle>
inline Handle made(int kind) {
  return reinterpret_cast<Handle>((long long)kind << 8 | ++w2w_handles);
}
struct thrower {
  template <class T>
  void operator=(const T &) const { call(99); }
};

}  // namespace w2w

#define throw ::w2w::thrower{} =

// The standard library

namespace std {
template <class T, unsigned long N>
struct array {
  T items[N];
  T &operator[](unsigned long i) { return items[i]; }
  const T &operator[](unsigned long i) const { return items[i]; }
  T *begin() { return items; }
  T *end() { return items + N; }
  constexpr unsigned long size() const { return N; }
};
struct string {
  string(const char *) {}
  string operator+(const char *) const { return *this; }
  string operator+(const string &) const { return *this; }
};
struct runtime_error {
  runtime_error(const char *) {}
  runtime_error(const string &) {}
};
template <class T>
constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T>
constexpr T max(T a, T b) { return a < b ? b : a; }
using ::size_t;
}  // namespace std

// HIP

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
enum hipError_t { hipSuccess = 0, hipErrorInvalidValue = 1 };
enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize = 8, hipFuncAttributePreferredSharedMemoryCarveout = 9 };
constexpr unsigned hipStreamDefault = 0, hipStreamNonBlocking = 1, hipEventDefault = 0, hipEventDisableTiming = 2;

inline hipError_t w2w_status() { return w2w_fails == 1 ? hipErrorInvalidValue : hipSuccess; }
inline const char *hipGetErrorString(hipError_t) { return ""; }
inline const char *hipGetErrorName(hipError_t) { return ""; }
inline hipError_t hipFuncSetAttribute(const void *, hipFuncAttribute, int) { return w2w_status(); }
inline hipError_t hipStreamCreateWithFlags(hipStream_t *made, unsigned flags) {
  *made = w2w::made<hipStream_t>(1);
  w2w::call(1, *made, flags);
  return w2w_status();
}
inline hipError_t hipEventCreateWithFlags(hipEvent_t *made, unsigned flags) {
  *made = w2w::made<hipEvent_t>(2);
  w2w::call(2, *made, flags);
  return w2w_status();
}
inline hipError_t hipStreamCreate(hipStream_t *made) { return hipStreamCreateWithFlags(made, hipStreamDefault); }
inline hipError_t hipEventCreate(hipEvent_t *made) { return hipEventCreateWithFlags(made, hipEventDefault); }
inline hipError_t hipStreamDestroy(hipStream_t stream) { return w2w::call(3, stream), w2w_status(); }
inline hipError_t hipEventDestroy(hipEvent_t event) { return w2w::call(4, event), w2w_status(); }
inline hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream = nullptr) {
  return w2w::call(5, event, stream), w2w_status();
}
inline hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags = 0) {
  return w2w::call(6, stream, event, flags), w2w_status();
}
inline hipError_t hipMemsetAsync(void *place, int value, size_t bytes, hipStream_t stream = nullptr) {
  return w2w::call(7, place, value, bytes, stream), w2w_status();
}
inline hipError_t hipPeekAtLastError() {
  w2w::call(8);
  return w2w_failed ? hipErrorInvalidValue : w2w_status();
}
inline hipError_t hipGetLastError() {
  const hipError_t error = hipPeekAtLastError();
  w2w_failed = 0;
  return error;
}

// A launch: kernel, grid, block, dynamic shared memory, stream, and then its arguments.
int w2w_kernel(const void *kernel);

template <class... P>
struct w2w_launcher {
  const void *kernel;
  dim3 grid, block;
  size_t shared;
  hipStream_t stream;
  void operator()(P... arguments) const {
    w2w::call(9, w2w_kernel(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments...);
    w2w_failed = w2w_fails == 3;
  }
};
template <class... P>
inline w2w_launcher<P...> w2w_configured(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared = 0,
                                         hipStream_t stream = nullptr) {
  return {reinterpret_cast<const void *>(kernel), grid, block, shared, stream};
}
#define hipLaunchKernelGGL(kernel, grid, block, shared, stream, ...) \
  w2w_configured(kernel, grid, block, shared, stream)(__VA_ARGS__)
#define HIP_KERNEL_NAME(...) __VA_ARGS__

// The same with a configuration; HIP has no attribute for the overlap of launches.
enum hipLaunchAttributeID { hipLaunchAttributeCooperative, hipLaunchAttributePriority };
union hipLaunchAttributeValue {
  int cooperative, priority;
};
struct hipLaunchAttribute {
  hipLaunchAttributeID id;
  hipLaunchAttributeValue val;
};
struct hipLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  hipStream_t stream;
  hipLaunchAttribute *attrs;
  unsigned numAttrs;
};
template <class... P, class... A>
inline hipError_t hipLaunchKernelEx(const hipLaunchConfig_t *config, void (*kernel)(P...), A &&...arguments) {
  w2w_configured(kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream)(arguments...);
  return w2w_failed ? hipErrorInvalidValue : w2w_status();
}

// hipBLAS, RCCL, roctx

typedef struct w2w_blas *hipblasHandle_t;
enum hipblasStatus_t { HIPBLAS_STATUS_SUCCESS = 0, HIPBLAS_STATUS_INVALID_VALUE = 3 };
enum hipblasOperation_t { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112, HIPBLAS_OP_C = 113 };
inline hipblasStatus_t w2w_blas_status() { return w2w_fails ? HIPBLAS_STATUS_INVALID_VALUE : HIPBLAS_STATUS_SUCCESS; }
inline hipblasStatus_t hipblasSetStream(hipblasHandle_t handle, hipStream_t stream) {
  return w2w::call(10, handle, stream), w2w_blas_status();
}
inline hipblasStatus_t hipblasSgemm(hipblasHandle_t handle, hipblasOperation_t a, hipblasOperation_t b, int m, int n,
                                    int k, const float *alpha, const float *A, int lda, const float *B, int ldb,
                                    const float *beta, float *C, int ldc) {
  w2w::call(11, handle, a, b, m, n, k, *alpha, A, lda, B, ldb, *beta, C, ldc);
  return w2w_blas_status();
}

typedef struct ncclComm *ncclComm_t;
enum ncclResult_t { ncclSuccess = 0, ncclUnhandledCudaError = 1 };
enum ncclDataType_t { ncclInt8 = 0, ncclInt32 = 2, ncclFloat16 = 6, ncclHalf = 6, ncclFloat32 = 7, ncclFloat = 7, ncclDouble = 8, ncclBfloat16 = 9 };
enum ncclRedOp_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
inline const char *ncclGetErrorString(ncclResult_t) { return ""; }
inline ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  ncclComm_t comm, hipStream_t stream) {
  w2w::call(12, from, to, count, type, op, comm, stream);
  return w2w_fails ? ncclUnhandledCudaError : ncclSuccess;
}

inline int roctxRangePushA(const char *name) { return w2w::call_with_name(13, name), 0; }
inline int roctxRangePush(const char *name) { return roctxRangePushA(name); }
inline int roctxRangePop() { return w2w::call(14), 0; }
