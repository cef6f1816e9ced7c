"""The C++ exercises of unit 03: other right answers pass, the lab and the exercise read one source."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from gpu_utils.course.sources import load_solution
from gpu_utils.grading.check import check

NAMES = ("warp_reduce", "ballot", "lane_id")


def module(name):
    return importlib.import_module(f"gpu_utils.exercises.u03_porting_to_rocm.{name}")


pytestmark = pytest.mark.usefixtures("clang")


@pytest.mark.parametrize("name", NAMES)
def test_the_lab_and_the_exercise_read_one_file_to_the_same_source(name):
    assert load_solution(f"03.{name}")() == module(name).ANSWER()


RIGHT = {
    "a wavefront as two groups of 32": (
        "warp_reduce",
        """
  __shared__ float partial[32];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(__activemask(), value, offset, 32);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = threadIdx.x < warps ? partial[threadIdx.x] : 0.0f;
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(__activemask(), value, offset, 32);
  return value;""",
    ),
    "no shuffle at all: a tree in shared memory": (
        "warp_reduce",
        """
  __shared__ float all[1024];
  all[threadIdx.x] = value;
  int half = 512;
  for (; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half && threadIdx.x + half < blockDim.x) all[threadIdx.x] += all[threadIdx.x + half];
  }
  return all[0];""",
    ),
    "thread 0 adds up the waves, in double precision": (
        "warp_reduce",
        """
  __shared__ double of[32];
  double mine = value, sum = 0;
  for (int step = warpSize / 2; step; step >>= 1) mine += __shfl_down_sync(__activemask(), mine, step);
  if (threadIdx.x % warpSize == 0) of[threadIdx.x / warpSize] = mine;
  __syncthreads();
  if (threadIdx.x == 0) for (int w = 0; w * warpSize < blockDim.x; ++w) sum += of[w];
  return sum;""",
    ),
    "a butterfly, and one atomic a wave": (
        "warp_reduce",
        """
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0.0f;
  __syncthreads();
  for (int lanes = 1; lanes < warpSize; lanes *= 2) {
    int first = threadIdx.x / warpSize * warpSize;
    float other = __shfl_xor_sync(__activemask(), value, lanes);
    if (first + ((threadIdx.x - first) ^ lanes) < blockDim.x) value += other;
  }
  if (threadIdx.x % warpSize == 0) atomicAdd(&sum, value);
  __syncthreads();
  return sum;""",
    ),
    "the form without a mask": (
        "ballot",
        """
  unsigned long long votes = __ballot(keep);
  unsigned long long below = votes << (63 - threadIdx.x % warpSize);
  *kept = __popcll(votes);
  return __popcll(below) - keep;""",
    ),
    "a scan by shuffles": (
        "ballot",
        """
  int lane = threadIdx.x % warpSize, sum = keep;
  for (int offset = 1; offset < warpSize; offset *= 2) {
    int before = __shfl_up_sync(__activemask(), sum, offset);
    if (lane >= offset) sum += before;
  }
  int last = min((int)blockDim.x - 1 - (int)(threadIdx.x - lane), warpSize - 1);
  *kept = __shfl_sync(__activemask(), sum, last);
  return sum - keep;""",
    ),
    "more room than needed, and bits": (
        "lane_id",
        """
constexpr int MAX_WAVES = 64;
__device__ int lane_id() { return thread_id() & (warpSize - 1); }
__device__ int wave_id() { return (thread_id() - lane_id()) / warpSize; }
__device__ int wave_count() { return (thread_count() - 1) / warpSize + 1; }
__device__ Place place_of(int wave, int lane) {
  int n = lane + warpSize * wave, layer = blockDim.x * blockDim.y, z = n / layer, rest = n - z * layer;
  Place place;
  place.z = z, place.y = rest / (int)blockDim.x, place.x = rest - place.y * blockDim.x;
  return place;
}""",
    ),
}


@pytest.mark.parametrize("what", RIGHT)
def test_another_right_answer_passes(what):
    name, part = RIGHT[what]
    report = check(module(name).EXERCISE, module(name).ANSWER.filled(part.strip("\n")))
    assert report.passed, f"{report}\n{report.first_failure}"


WITHOUT_A_BARRIER = {
    "a tree whose rounds do not wait": (
        "warp_reduce",
        """
  __shared__ float all[1024];
  all[threadIdx.x] = value;
  __syncthreads();
  for (int half = 512; half > 0; half /= 2)
    if (threadIdx.x < half && threadIdx.x + half < blockDim.x) all[threadIdx.x] += all[threadIdx.x + half];
  return all[0];""",
    ),
    "a barrier for the first wave alone": (
        "warp_reduce",
        """
  __shared__ float partial[32];
  int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_down_sync(__activemask(), value, offset);
  if (lane == 0) partial[warp] = value;
  if (warp == 0) __syncthreads();
  float sum = 0.0f;
  for (int w = 0; w * warpSize < blockDim.x; ++w) sum += partial[w];
  return sum;""",
    ),
    "an atomic on a sum that is cleared too late": (
        "warp_reduce",
        """
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0.0f;
  atomicAdd(&sum, value);
  __syncthreads();
  return sum;""",
    ),
}


@pytest.mark.parametrize("what", WITHOUT_A_BARRIER)
def test_a_barrier_that_is_missing_is_found_whatever_the_sum_is(what):
    name, part = WITHOUT_A_BARRIER[what]
    report = check(module(name).EXERCISE, module(name).ANSWER.filled(part.strip("\n")), seed=1)
    assert report.status == "failed"
    assert "no barrier stands between" in report.headline


@pytest.mark.parametrize("name", ["ballot", "lane_id"])
def test_so_is_one_in_the_part_that_is_given(name):
    answer = module(name).ANSWER().replace("__syncthreads();", "")
    assert "Race" in check(module(name).EXERCISE, lambda: answer, seed=1).headline
