// A ring of streams for copies and collectives, each with an event that says when it is free again.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <stdexcept>
#include <string>

namespace normq {

inline void check(cudaError_t status, const char *call) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
  }
}
#define NORMQ_CHECK(call) ::normq::check((call), #call)

class StreamRing {
 public:
  StreamRing() {
    for (int i = 0; i < kStreams; ++i) {
      NORMQ_CHECK(cudaStreamCreateWithFlags(&streams_[i], cudaStreamNonBlocking));
      NORMQ_CHECK(cudaEventCreateWithFlags(&done_[i], cudaEventDisableTiming));
    }
  }
  ~StreamRing() {
    for (int i = 0; i < kStreams; ++i) {
      cudaEventDestroy(done_[i]);
      cudaStreamDestroy(streams_[i]);
    }
  }

  // The next stream; it waits for what `producer` has queued so far.
  cudaStream_t next(cudaStream_t producer) {
    at_ = (at_ + 1) % kStreams;
    NORMQ_CHECK(cudaEventRecord(done_[at_], producer));
    NORMQ_CHECK(cudaStreamWaitEvent(streams_[at_], done_[at_], 0));
    return streams_[at_];
  }

  // `consumer` waits for everything that the ring has queued.
  void join(cudaStream_t consumer) {
    for (int i = 0; i < kStreams; ++i) {
      NORMQ_CHECK(cudaEventRecord(done_[i], streams_[i]));
      NORMQ_CHECK(cudaStreamWaitEvent(consumer, done_[i], 0));
    }
  }

 private:
  static constexpr int kStreams = 4;
  std::array<cudaStream_t, kStreams> streams_{};
  std::array<cudaEvent_t, kStreams> done_{};
  int at_ = 0;
};

}  // namespace normq
