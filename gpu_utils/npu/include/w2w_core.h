// What AscendC's C API does on a virtual AI core: copies, products, flags. Sources: the API's reference
// (CANN asc-devkit, docs/api, C API) and the comments of TileLang's templates for Ascend.
#pragma once

#include "w2w_machine.h"
#include "w2w_types.h"

#pragma clang attribute push(W2W_QUIET, apply_to = function)

enum event_t : int {};
enum class asc_load_l2_cache_mode : int {};
enum class asc_store_l2_cache_mode : int {};
enum class asc_dual_dst_mode : int {};
enum class asc_unit_flag_mode : int {};
enum class asc_quant_mode : int {};
enum class asc_relu_pre_mode : int {};
enum class asc_hf32_round_mode : int { NEAREST_EVEN, NEAREST_AWAY };
enum { ASC_LOCK_BLOCK = 0 };

#define ASC_IS_AIC (w2w::M.now->kind == 0)
#define ASC_IS_AIV (w2w::M.now->kind != 0)
#define block_idx (w2w::M.now->block)

inline void asc_init() {}
inline int64_t asc_get_sub_block_id() { return w2w::M.now->kind ? w2w::M.now->kind - 1 : 0; }
inline void w2w_at(int line) { w2w::M.line = line; }
inline void *w2w_ub() { return w2w::ub_home(w2w::M.now)->base; }

// ------------------------------------------------------------------------------------------- flags and locks

namespace w2w {
inline void flag_name(char (&text)[56], int from, int to, int id) {
  snprintf(text, sizeof text, "flag (%s, %s, %d)", PIPE_NAMES[from], PIPE_NAMES[to], id);
}
} // namespace w2w

inline void asc_sync_notify(int from, int to, int id) {
  using namespace w2w;
  if (from >= PIPES || to >= PIPES || id < 0 || id >= FLAGS) {
    if (Fault *f = fault("bad flag", M.line, id))
      snprintf(f->text, sizeof f->text, "line %d: there is no flag (%d, %d, %d); pipes are PIPE_S to PIPE_FIX, ids 0 to %d", M.line, from, to, id, FLAGS - 1);
    return;
  }
  M.counts.notifies++;
  char what[56];
  flag_name(what, from, to, id);
  issue("asc_sync_notify", from, [=] {
    Flag &flag = M.now->flags[from][to][id];
    if (flag.waiting())
      if (Fault *f = fault("set twice", M.ops[M.op].line, flag.line))
        snprintf(f->text, sizeof f->text, "line %d sets flag (%s, %s, %d), which line %d has set and nothing has waited for", M.ops[M.op].line,
                 PIPE_NAMES[from], PIPE_NAMES[to], id, flag.line);
    set(flag);
  }, what, int(M.now - M.core));
}

inline void asc_sync_wait(int from, int to, int id) {
  using namespace w2w;
  if (from >= PIPES || to >= PIPES || id < 0 || id >= FLAGS) {
    if (Fault *f = fault("bad flag", M.line, id))
      snprintf(f->text, sizeof f->text, "line %d: there is no flag (%d, %d, %d); pipes are PIPE_S to PIPE_FIX, ids 0 to %d", M.line, from, to, id, FLAGS - 1);
    return;
  }
  M.counts.waits++;
  Core *core = M.now;
  char what[56];
  flag_name(what, from, to, id);
  issue_when("asc_sync_wait", to, what, [=] { return core->flags[from][to][id].waiting() > 0; }, [=] { take(core->flags[from][to][id]); });
}

// The scalar unit waits for every pipe of its core, and every pipe for the others.
inline void asc_sync() {
  using namespace w2w;
  Core *core = M.now;
  block_until([=] {
    for (int p = 0; p < PIPES; ++p)
      if (!core->queue[p].empty())
        return false;
    return true;
  }, "asc_sync");
  Clock scalar = clock_of(core, PIPE_S);
  for (int p = 0; p < PIPES; ++p)
    join(scalar, clock_of(core, p));
  M.counts.waits++;
}

// What the pipe has been given before is finished before the pipe goes on; other pipes learn nothing.
inline void asc_sync_pipe(int pipe) {
  using namespace w2w;
  if (pipe == PIPE_ALL)
    return asc_sync();
  M.counts.waits++;
  const int thread = thread_of(M.now, pipe);
  issue("asc_sync_pipe", pipe, [=] { M.finished[thread] = M.clock[thread][thread]; });
}

namespace w2w {
inline bool known_id(const char *of, int id, int count) {
  if (id >= 0 && id < count)
    return true;
  if (Fault *f = fault("bad flag", M.line, id))
    snprintf(f->text, sizeof f->text, "line %d: there is no %s %d; ids are 0 to %d", M.line, of, id, count - 1);
  return false;
}
} // namespace w2w

// A lock goes to whoever asked first in the kernel's text; the next pipe gets it, with all that the last one did, when it is released.
inline void asc_lock(int pipe, int id, int) {
  using namespace w2w;
  Core *core = M.now;
  if (!known_id("lock", id, LOCKS))
    return;
  M.counts.locks++;
  const uint32_t ticket = core->locks[id].asked++;
  char what[56];
  snprintf(what, sizeof what, "lock %d", id);
  issue_when("asc_lock", pipe, what, [=] { return core->locks[id].owner < 0 && core->locks[id].given == ticket; }, [=] {
    Lock &lock = core->locks[id];
    lock.owner = pipe, lock.line = M.ops[M.op].line;
    if (lock.released)
      learn(thread_of(core, pipe), lock.released);
  });
}
inline void asc_unlock(int pipe, int id, int) {
  using namespace w2w;
  Core *core = M.now;
  if (!known_id("lock", id, LOCKS))
    return;
  char what[56];
  snprintf(what, sizeof what, "lock %d", id);
  issue("asc_unlock", pipe, [=] {
    Lock &lock = core->locks[id];
    if (lock.owner != pipe)
      if (Fault *f = fault("not locked", M.ops[M.op].line, id)) {
        snprintf(f->text, sizeof f->text, "line %d: %s releases lock %d of %s, which it does not hold", M.ops[M.op].line, PIPE_NAMES[pipe], id,
                 core_name(int(core - M.core)));
        snprintf(f->missing, sizeof f->missing, "asc_lock(%s, %d, ASC_LOCK_BLOCK) before it", PIPE_NAMES[pipe], id);
      }
    lock.owner = -1, lock.given++;
    if (!lock.released)
      lock.released = fresh_clock();
    join(lock.released, my_clock());
  }, what, int(core - M.core));
}

// Between the cube core and its vector cores. Seen from the cube core, ids from 16 on belong to vector core 1.
inline void asc_sync_intra_arrive(int pipe, int id) {
  using namespace w2w;
  M.counts.arrives++;
  if (M.per_block != 3) {
    if (Fault *f = fault("bad flag", M.line, id))
      snprintf(f->text, sizeof f->text, "line %d: this kernel runs on one kind of core, and no other core of the block can wait", M.line);
    return;
  }
  if (!known_id("id between cores", id, CHANNELS))
    return;
  Core *home = &M.core[M.now->block * M.per_block];
  const int kind = M.now->kind, to = kind == 0 ? (id < 16 ? 1 : 2) : 0, channel = kind == 0 ? id % 16 : id % 16 + 16 * (kind - 1);
  char what[56];
  snprintf(what, sizeof what, "an arrival on id %d", channel);
  issue("asc_sync_intra_arrive", pipe, [=] { set(home[to].channels[channel]); }, what, int(home + to - M.core));
}
inline void asc_sync_intra_wait(int pipe, int id) {
  using namespace w2w;
  if (!known_id("id between cores", id, CHANNELS))
    return;
  Core *core = M.now;
  M.counts.waits++;
  char what[56];
  snprintf(what, sizeof what, "an arrival on id %d", id);
  issue_when("asc_sync_intra_wait", pipe, what, [=] { return core->channels[id].waiting() > 0; }, [=] { take(core->channels[id]); });
}

namespace w2w {
struct Meeting {
  Clock gathered;
  int arrived;
};
inline constinit List<Meeting> meetings[CHANNELS][2]{};
} // namespace w2w
// All cores of this kind, over all blocks: a wait passes when each of them has arrived.
inline void asc_sync_inter_arrive(int pipe, int id) {
  using namespace w2w;
  if (!known_id("id over all blocks", id, CHANNELS))
    return;
  M.counts.arrives++;
  issue("asc_sync_inter_arrive", pipe, [=] {
    List<Meeting> &list = meetings[id][M.now->kind != 0];
    const uint32_t mine = M.now->arrived[id]++;
    while (list.count <= mine)
      list.add() = {fresh_clock(), 0};
    list[mine].arrived++;
    join(list[mine].gathered, my_clock());
  });
}
inline void asc_sync_inter_wait(int pipe, int id) {
  using namespace w2w;
  Core *core = M.now;
  if (!known_id("id over all blocks", id, CHANNELS))
    return;
  M.counts.waits++;
  const int of_kind = core->kind == 0 || M.per_block == 1 ? M.blocks : 2 * M.blocks;
  const uint32_t turn = core->across[id]++;
  issue_when("asc_sync_inter_wait", pipe, "all cores of its kind", [=] {
    List<Meeting> &list = meetings[id][core->kind != 0];
    return list.count > turn && list[turn].arrived == of_kind;
  }, [=] { learn(thread_of(core, pipe), meetings[id][core->kind != 0][turn].gathered); });
}

// ------------------------------------------------------------------------------------------- GM, UB, L1

inline void asc_set_gm2l1_nz_para(uint16_t, uint16_t n_stride, uint16_t c0_stride, uint16_t) {
  w2w::M.now->nz_n_stride = n_stride, w2w::M.now->nz_c0_stride = c0_stride;
}
inline void asc_set_copy_pad_val(uint8_t v) { w2w::M.now->pad_value = v * 0x0101010101010101ull; }
inline void asc_set_copy_pad_val(uint16_t v) { w2w::M.now->pad_value = v * 0x0001000100010001ull; }
inline void asc_set_copy_pad_val(uint32_t v) { w2w::M.now->pad_value = v * 0x0000000100000001ull; }

namespace w2w {
// Rows of a matrix in GM become fractals of 16 rows and 32 bytes, column of fractals after column: N z.
// by_columns: the matrix lies in GM column after column.
template <class T> void to_fractals(const char *name, T *dst, T *src, uint64_t stride, int n, int d, bool by_columns) {
  const int n_stride = M.now->nz_n_stride, c0_stride = M.now->nz_c0_stride, c0 = 32 / int(sizeof(T));
  issue(name, PIPE_MTE2, [=] {
    const Ref to = local_ref(L1, dst), from = gm_ref(src);
    if (!aligned(to, 32, "its destination"))
      return;
    for (int k = 0; k < (d + c0 - 1) / c0; ++k)
      for (int j = 0; j < n; ++j) {
        const Ref block = {to.region, to.at + 32ull * (uint64_t(k) * c0_stride + uint64_t(j) * n_stride)};
        const int columns = d - k * c0 < c0 ? d - k * c0 : c0;
        if (!inside(block.region, block.at, 32))
          return;
        touch(block.region, block.at, 32, true);
        uint8_t *out = block.region->base + block.at;
        memset(out, 0, 32);
        for (int e = 0; e < columns; ++e) {
          const uint64_t at = from.at + (by_columns ? (uint64_t(k) * c0 + e) * stride + uint64_t(j) * sizeof(T)
                                                    : uint64_t(j) * stride + (uint64_t(k) * c0 + e) * sizeof(T));
          const uint64_t run = by_columns ? sizeof(T) : uint64_t(columns) * sizeof(T);
          if (!inside(from.region, at, run))
            return;
          touch(from.region, at, run, false);
          memcpy(out + e * sizeof(T), from.region->base + at, run);
          count_path(GM, L1, run);
          if (!by_columns)
            break;
        }
      }
  });
}
} // namespace w2w
template <class T>
void asc_copy_gm2l1_nd2nz(T *dst, T *src, uint64_t stride, asc_load_l2_cache_mode, int n, int d, uint64_t, int) {
  w2w::to_fractals("asc_copy_gm2l1_nd2nz", dst, src, stride, n, d, false);
}
template <class T>
void asc_copy_gm2l1_dn2nz(T *dst, T *src, uint64_t stride, asc_load_l2_cache_mode, int n, int d, uint64_t, int) {
  w2w::to_fractals("asc_copy_gm2l1_dn2nz", dst, src, stride, n, d, true);
}

struct asc_fill_value_config {
  uint64_t repeat, blk_num, dst_gap;
};
template <class T> void asc_fill_l1(T *dst, uint32_t value, asc_fill_value_config c) {
  using namespace w2w;
  issue("asc_fill_l1", PIPE_MTE2, [=] {
    Ref to = local_ref(L1, dst);
    for (uint64_t r = 0; r < c.repeat; ++r, to.at += 32 * c.dst_gap)
      for (uint64_t b = 0; b < c.blk_num; ++b, to.at += 32) {
        if (!inside(to.region, to.at, 32))
          return;
        touch(to.region, to.at, 32, true);
        for (size_t e = 0; e < 32 / sizeof(T); ++e)
          reinterpret_cast<T *>(to.region->base + to.at)[e] = T(value);
      }
  });
}

// Bursts of bytes into UB, each from a multiple of 32 bytes on; what a pad fills counts elements of T.
template <class T>
void asc_copy_gm2ub_align(T *dst, T *src, uint32_t bursts, uint32_t bytes, int left, int right, bool, asc_load_l2_cache_mode,
                          uint64_t from_stride, uint64_t to_stride) {
  using namespace w2w;
  const uint64_t pad = M.now->pad_value;
  issue("asc_copy_gm2ub_align", PIPE_MTE2, [=] {
    const Ref to = ub_ref(dst), from = gm_ref(src);
    if (!aligned(to, 32, "its destination"))
      return;
    for (uint32_t b = 0; b < bursts; ++b) {
      const uint64_t lead = uint64_t(left) * sizeof(T), tail = uint64_t(right) * sizeof(T), at = to.at + b * to_stride;
      move({to.region, at + lead}, {from.region, from.at + b * from_stride}, bytes);
      count_path(GM, UB, bytes);
      if (lead + tail == 0 || !inside(to.region, at, lead + bytes + tail))
        continue;
      touch(to.region, at, lead, true), touch(to.region, at + lead + bytes, tail, true);
      for (uint64_t i = 0; i < lead + tail; ++i) {
        const uint64_t byte = i < lead ? i : bytes + i;
        to.region->base[at + byte] = uint8_t(pad >> 8 * (i % 8));
      }
    }
  });
}

template <class T> T w2w_combined(int how, T old, T value) {
  return how == 1 ? T(old + value) : how == 2 ? (old > value ? old : value) : (old < value ? old : value);
}
namespace w2w {
enum Numbers { BYTES, F32, F16, BF16, S32, S16, S8 };
inline Numbers atomic_numbers = BYTES;
// A store that adds, or keeps the larger or smaller: no two of them conflict, since each is indivisible.
template <class T> void combine(int how, Ref to, Ref from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes / sizeof(T); ++i) {
    T *target = reinterpret_cast<T *>(to.region->base + to.at) + i;
    *target = w2w_combined(how, *target, reinterpret_cast<T *>(from.region->base + from.at)[i]);
  }
}
inline void store_combined(int how, Numbers numbers, Ref to, Ref from, uint64_t bytes) {
  if (!inside(from.region, from.at, bytes) || !inside(to.region, to.at, bytes))
    return;
  touch(from.region, from.at, bytes, false);
  switch (numbers) {
  case F32: return combine<float>(how, to, from, bytes);
  case F16: return combine<half>(how, to, from, bytes);
  case BF16: return combine<bfloat16_t>(how, to, from, bytes);
  case S32: return combine<int32_t>(how, to, from, bytes);
  case S16: return combine<int16_t>(how, to, from, bytes);
  case S8: return combine<int8_t>(how, to, from, bytes);
  default: break;
  }
}
inline void start_atomic(int how, Numbers numbers) { M.now->atomic = how | int(numbers) << 4; }
} // namespace w2w
#define W2W_ATOMIC(type, kind)                                                                                         \
  inline void asc_set_atomic_add_##type() { w2w::start_atomic(1, w2w::kind); }                                          \
  inline void asc_set_atomic_max_##type() { w2w::start_atomic(2, w2w::kind); }                                          \
  inline void asc_set_atomic_min_##type() { w2w::start_atomic(3, w2w::kind); }
W2W_ATOMIC(float, F32)
W2W_ATOMIC(float16, F16)
W2W_ATOMIC(bfloat, BF16)
W2W_ATOMIC(int32, S32)
W2W_ATOMIC(int16, S16)
W2W_ATOMIC(int8, S8)
inline void asc_set_atomic_none() { w2w::M.now->atomic = 0; }

inline void asc_copy_ub2gm_align(uint8_t *dst, uint8_t *src, uint32_t bursts, uint32_t bytes, asc_store_l2_cache_mode,
                                 uint64_t to_stride, uint64_t from_stride) {
  using namespace w2w;
  const int atomic = M.now->atomic;
  issue("asc_copy_ub2gm_align", PIPE_MTE3, [=] {
    const Ref to = gm_ref(dst), from = ub_ref(src);
    if (!aligned(from, 32, "its source"))
      return;
    for (uint32_t b = 0; b < bursts; ++b) {
      const Ref target = {to.region, to.at + b * to_stride}, source = {from.region, from.at + b * from_stride};
      if (atomic)
        store_combined(atomic & 15, Numbers(atomic >> 4), target, source, bytes);
      else
        move(target, source, bytes);
      count_path(UB, GM, bytes);
    }
  });
}

// Bursts and gaps in blocks of 32 bytes.
inline void asc_copy_ub2l1(void *dst, void *src, uint32_t bursts, uint32_t blocks, uint32_t from_gap, uint32_t to_gap) {
  using namespace w2w;
  issue("asc_copy_ub2l1", PIPE_MTE3, [=] {
    Region *l1 = M.core[M.now->block * M.per_block].region[L1];
    const Ref to = {l1, uint64_t(reinterpret_cast<uintptr_t>(dst))}, from = ub_ref(src);
    for (uint32_t b = 0; b < bursts; ++b) {
      move({l1, to.at + 32ull * b * (blocks + to_gap)}, {from.region, from.at + 32ull * b * (blocks + from_gap)}, 32ull * blocks);
      count_path(UB, L1, 32ull * blocks);
    }
  });
}

// ------------------------------------------------------------------------------------------- the cube core

namespace w2w {
// Fractals (m, k) of L1 to L0, k after k; turned: each 16 x 16 fractal transposed, and m counts rows of K.
template <class T> void load(const char *name, Space space, T *dst, T *src, int m0, int k0, int ms, int ks, int from_stride, int to_stride, bool turned) {
  issue(name, PIPE_MTE1, [=] {
    const Ref to = local_ref(space, dst), from = local_ref(L1, src);
    for (int k = 0; k < ks; ++k)
      for (int m = 0; m < ms; ++m) {
        const Ref source = {from.region, from.at + 512ull * (uint64_t(k0 + k) * from_stride + (m0 + m))};
        const Ref target = {to.region, to.at + 512ull * (turned ? uint64_t(m) * to_stride + k : uint64_t(k) * to_stride + m)};
        move(target, source, 512);
        count_path(L1, space, 512);
        if (turned && target.at + 512 <= target.region->bytes) {
          static_assert(sizeof(T) <= 8);
          T turned_one[256];
          T *fractal = reinterpret_cast<T *>(target.region->base + target.at);
          for (int i = 0; i < 256; ++i)
            turned_one[i % 16 * 16 + i / 16] = fractal[i];
          memcpy(fractal, turned_one, 512);
        }
      }
  });
}
} // namespace w2w
template <class T> void asc_copy_l12l0a(T *dst, T *src, int m0, int k0, int ms, int ks, int from_stride, int to_stride) {
  w2w::load("asc_copy_l12l0a", w2w::L0A, dst, src, m0, k0, ms, ks, from_stride, to_stride, false);
}
template <class T> void asc_copy_l12l0b(T *dst, T *src, int m0, int k0, int ms, int ks, int from_stride, int to_stride) {
  w2w::load("asc_copy_l12l0b", w2w::L0B, dst, src, m0, k0, ms, ks, from_stride, to_stride, false);
}
template <class T> void asc_copy_l12l0a_transpose(T *dst, T *src, int m0, int k0, int ms, int ks, int from_stride, int to_stride) {
  static_assert(sizeof(T) == 2, "asc_copy_l12l0a_transpose: the virtual AI core turns 16-bit fractals only");
  w2w::load("asc_copy_l12l0a_transpose", w2w::L0A, dst, src, m0, k0, ms, ks, from_stride, to_stride, true);
}
template <class T> void asc_copy_l12l0b_transpose(T *dst, T *src, int m0, int k0, int ms, int ks, int from_stride, int to_stride) {
  static_assert(sizeof(T) == 2, "asc_copy_l12l0b_transpose: the virtual AI core turns 16-bit fractals only");
  w2w::load("asc_copy_l12l0b_transpose", w2w::L0B, dst, src, m0, k0, ms, ks, from_stride, to_stride, true);
}

inline void asc_enable_hf32() { w2w::refuse("asc_enable_hf32"); }
inline void asc_disable_hf32() {}
inline void asc_set_mmad_direction_m() {}
inline void asc_set_mmad_direction_n() {}

// C (m, n) += A (m, k) B (k, n); sums are kept in AccT, one product after the other along k.
template <class AccT, class InT>
void asc_mmad(AccT *c, InT *a, InT *b, int m, int k, int n, int unit, bool, bool, bool clear) {
  using namespace w2w;
  Core *core = M.now;
  const uint32_t before = core->unit_m;
  core->unit_m += unit == 3;
  issue_when("asc_mmad", PIPE_M, "the unit flag that PIPE_FIX gives back", [=] { return !unit || core->unit_drained >= before; }, [=] {
    const int c0 = 32 / int(sizeof(InT)), mb = (m + 15) / 16, nb = (n + 15) / 16, kb = (k + c0 - 1) / c0;
    const Ref ra = local_ref(L0A, a), rb = local_ref(L0B, b), rc = local_ref(L0C, c);
    const uint64_t a_bytes = 512ull * mb * kb, b_bytes = 512ull * nb * kb, c_bytes = 256ull * sizeof(AccT) * mb * nb;
    if (!inside(ra.region, ra.at, a_bytes) || !inside(rb.region, rb.at, b_bytes) || !inside(rc.region, rc.at, c_bytes))
      return;
    if (unit && core->unit_from_fix)
      join(my_clock(), core->unit_from_fix);
    touch(ra.region, ra.at, a_bytes, false);
    touch(rb.region, rb.at, b_bytes, false);
    if (!clear)
      touch(rc.region, rc.at, c_bytes, false);
    touch(rc.region, rc.at, c_bytes, true);
    const InT *ma = reinterpret_cast<InT *>(ra.region->base + ra.at), *mbp = reinterpret_cast<InT *>(rb.region->base + rb.at);
    AccT *mc = reinterpret_cast<AccT *>(rc.region->base + rc.at);
    AccT *wide_a = static_cast<AccT *>(malloc(sizeof(AccT) * m * k)), *wide_b = static_cast<AccT *>(malloc(sizeof(AccT) * n * k));
    for (int i = 0; i < m; ++i)
      for (int p = 0; p < k; ++p)
        wide_a[i * k + p] = AccT(ma[(p / c0) * mb * 16 * c0 + i * c0 + p % c0]);
    for (int j = 0; j < n; ++j)
      for (int p = 0; p < k; ++p)
        wide_b[p * n + j] = AccT(mbp[(p / c0) * nb * 16 * c0 + j * c0 + p % c0]);
    AccT *row = static_cast<AccT *>(malloc(sizeof(AccT) * n));
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j)
        row[j] = clear ? AccT(0) : mc[(j / 16) * mb * 256 + i * 16 + j % 16];
      for (int p = 0; p < k; ++p) {
        const AccT left = wide_a[i * k + p];
        const AccT *right = wide_b + p * n;
#pragma clang loop vectorize(enable)
        for (int j = 0; j < n; ++j)
          row[j] += left * right[j];
      }
      for (int j = 0; j < n; ++j)
        mc[(j / 16) * mb * 256 + i * 16 + j % 16] = row[j];
    }
    free(wide_a), free(wide_b), free(row);
    M.counts.cube_flops += 2ull * m * n * k;
    if (unit == 3) {
      if (!core->unit_from_m)
        core->unit_from_m = fresh_clock();
      join(core->unit_from_m, my_clock());
      core->unit_filled++;
    }
  });
}

// Block-scaled products are refused by name.
template <class... Any> void asc_copy_l12l0a_mx(Any...) { w2w::refuse("asc_copy_l12l0a_mx"); }
template <class... Any> void asc_copy_l12l0b_mx(Any...) { w2w::refuse("asc_copy_l12l0b_mx"); }
template <class... Any> void asc_mmad_mx(Any...) { w2w::refuse("asc_mmad_mx"); }

namespace w2w {
template <class Out, class Acc> Out narrowed(Acc value, int relu) {
  if (relu && value < Acc(0))
    value = Acc(0);
  return Out(value);
}
// Rows [first_m, first_m + m) and columns [first_n, first_n + n) of the accumulator, row after row.
template <class Out, class Acc>
void drain(Ref to, Space space, Ref from, int first_m, int first_n, int m, int n, uint64_t to_stride, uint64_t from_stride, int relu) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n;) {
      const int column = first_n + j, run = 16 - column % 16 < n - j ? 16 - column % 16 : n - j;
      const uint64_t source = from.at + sizeof(Acc) * ((column / 16) * from_stride * 16 + uint64_t(first_m + i) * 16 + column % 16);
      const uint64_t target = to.at + sizeof(Out) * (uint64_t(i) * to_stride + j);
      if (!inside(from.region, source, run * sizeof(Acc)) || !inside(to.region, target, run * sizeof(Out)))
        return;
      touch(from.region, source, run * sizeof(Acc), false);
      touch(to.region, target, run * sizeof(Out), true);
      for (int e = 0; e < run; ++e)
        reinterpret_cast<Out *>(to.region->base + target)[e] = narrowed<Out>(reinterpret_cast<Acc *>(from.region->base + source)[e], relu);
      count_path(L0C, space, run * sizeof(Out));
      j += run;
    }
}
// With unit flags the drain of an accumulator waits for the last product into it (unit 3), and the next product for the drain.
template <class Run> void issue_drain(const char *name, int unit, Run run) {
  Core *core = M.now;
  const uint32_t mine = core->unit_fix += unit != 0;
  issue_when(name, PIPE_FIX, "the unit flag of a product", [=] { return !unit || core->unit_filled >= mine; }, run);
}
inline void unit_wait(int unit) {
  if (unit && M.now->unit_from_m)
    learn(thread_of(M.now, M.pipe), M.now->unit_from_m);
}
inline void unit_done(int unit) {
  if (!unit)
    return;
  if (!M.now->unit_from_fix)
    M.now->unit_from_fix = fresh_clock();
  join(M.now->unit_from_fix, my_clock());
  M.now->unit_drained++;
}
} // namespace w2w

inline void asc_set_l0c_copy_nz_para(uint16_t, uint16_t, uint32_t) {}

template <class Out, class Acc>
void asc_copy_l0c2gm(Out *dst, Acc *src, int n, int m, uint64_t to_stride, uint64_t from_stride, asc_store_l2_cache_mode,
                     asc_unit_flag_mode unit, asc_quant_mode, asc_relu_pre_mode relu, int, int by_rows, int by_columns, int) {
  using namespace w2w;
  const int atomic = M.now->atomic;
  if (!by_rows || by_columns || atomic)
    return refuse(atomic ? "asc_copy_l0c2gm with an atomic store" : "asc_copy_l0c2gm that keeps fractals");
  issue_drain("asc_copy_l0c2gm", int(unit), [=] {
    unit_wait(int(unit));
    drain<Out, Acc>(gm_ref(dst), GM, local_ref(L0C, src), 0, 0, m, n, to_stride, from_stride, int(relu));
    unit_done(int(unit));
  });
}

// dual 1: the upper half of the rows to vector core 0, the lower to vector core 1; dual 2: the same with columns.
template <class Out, class Acc>
void asc_copy_l0c2ub(Out *dst, Acc *src, int n, int m, uint64_t to_stride, uint64_t from_stride, int which, asc_dual_dst_mode dual,
                     asc_unit_flag_mode unit, asc_quant_mode, asc_relu_pre_mode relu, int, int by_rows, int by_columns, int) {
  using namespace w2w;
  if (!by_rows || by_columns)
    return refuse("asc_copy_l0c2ub that keeps fractals");
  issue_drain("asc_copy_l0c2ub", int(unit), [=] {
    unit_wait(int(unit));
    Core *home = &M.core[M.now->block * M.per_block];
    const uint64_t at = ub_ref(dst).at;
    const int halves = int(dual) ? 2 : 1, rows = int(dual) == 1 ? m / 2 : m, columns = int(dual) == 2 ? n / 2 : n;
    for (int half = 0; half < halves; ++half)
      drain<Out, Acc>({home[1 + (int(dual) ? half : which)].region[UB], at}, UB, local_ref(L0C, src), int(dual) == 1 ? half * rows : 0,
                      int(dual) == 2 ? half * columns : 0, rows, columns, to_stride, from_stride, int(relu));
    unit_done(int(unit));
  });
}

// ------------------------------------------------------------------------------------------- vector functions

namespace cce {
struct dim3 {
  int x, y, z;
  constexpr dim3(int x, int y = 1, int z = 1) : x(x), y(y), z(z) {}
};
} // namespace cce

struct w2w_index {
  int x, y, z;
};
inline constinit w2w_index threadIdx{}, blockDim{};

namespace w2w {
// Threads of a vector function that meet at barriers: one fiber each, taken in turns.
struct Team {
  Fiber *fibers;
  int count, running, progress;
};
inline constinit Team team{};
} // namespace w2w
inline int w2w_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline int w2w_threads() { return blockDim.x * blockDim.y * blockDim.z; }
inline int w2w_lane() { return w2w_thread() % 32; }
inline void w2w_set_thread(int t) {
  threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
  w2w::M.lane = uint16_t(t + 1);
}
// The next thread runs; this one goes on when its turn comes again.
inline void w2w_yield() {
  using namespace w2w;
  const int me = team.running;
  swapcontext(&team.fibers[me].context, &team.fibers[me].back);
  w2w_set_thread(me);
  team.running = me;
}

namespace w2w {
struct Body {
  void (*call)(void *);
  void *data;
};
inline constinit Body team_body{};
inline void team_start() {
  const int me = team.running;
  team_body.call(team_body.data);
  team.fibers[me].done = true;
}
inline void run_threads(cce::dim3 shape, Body body) {
  blockDim = {shape.x, shape.y, shape.z};
  const int count = w2w_threads();
#ifdef W2W_COLLECTIVES
  constexpr size_t STACK = 1 << 16;
  team = {static_cast<Fiber *>(calloc(count, sizeof(Fiber))), count, 0, 0};
  team_body = body;
  for (int t = 0; t < count; ++t) {
    Fiber &f = team.fibers[t];
    f.stack = static_cast<uint8_t *>(malloc(STACK));
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack, f.context.uc_stack.ss_size = STACK, f.context.uc_link = &f.back;
    makecontext(&f.context, team_start, 0);
  }
  for (int left = count, progress = -1; left > 0;) {
    if (team.progress == progress) {
      if (Fault *f = fault("never set", M.ops[M.op].line, PIPE_V))
        snprintf(f->text, sizeof f->text, "line %d: %d of %d threads wait for others that never come to the same barrier", M.ops[M.op].line, left, count);
      break;
    }
    progress = team.progress;
    left = 0;
    for (int t = 0; t < count; ++t) {
      Fiber &f = team.fibers[t];
      if (f.done)
        continue;
      team.running = t;
      w2w_set_thread(t);
      swapcontext(&f.back, &f.context);
      team.progress += f.done;
      left += !f.done;
    }
  }
  for (int t = 0; t < count; ++t)
    free(team.fibers[t].stack);
  free(team.fibers);
#else
  for (int t = 0; t < count; ++t) {
    w2w_set_thread(t);
    body.call(body.data);
  }
#endif
}
// Threads may read what lies beyond a tile's last row and throw it away; a function that finds nothing else is a fault.
template <class F> void on_vector(F f) {
  issue("vector function", PIPE_V, [=] {
    M.set_reads = M.unset_reads = 0;
    f();
    M.lane = 0;
    if (M.unset_reads && !M.set_reads)
      unwritten(UB, M.unset_at);
  });
}
} // namespace w2w

template <auto Function, class... Args> void asc_vf_call(cce::dim3 shape, Args... args) {
  const auto body = [=] { Function(args...); };
  w2w::on_vector([=] {
    auto own = body;
    w2w::run_threads(shape, {[](void *p) { (*static_cast<decltype(own) *>(p))(); }, &own});
  });
}
template <auto Function, class First, class... Args>
  requires(!std::is_same_v<First, cce::dim3>)
void asc_vf_call(First first, Args... args) {
  w2w::on_vector([=] { Function(first, args...); });
}

// What a vector function loads and stores. may_be_unset: lanes that a mask leaves out later.
inline void w2w_access(const void *p, uint64_t bytes, bool writes, bool may_be_unset) {
  using namespace w2w;
  const uint8_t *at = static_cast<const uint8_t *>(p);
  Core *home = &M.core[M.now->block * M.per_block];
  for (int c = 0; c < M.per_block; ++c)
    if (Region *r = home[c].region[UB]; r && at >= r->base && at < r->base + UB_ROOM) {
      if (!inside(r, uint64_t(at - r->base), bytes))
        return;
      touch(r, uint64_t(at - r->base), bytes, writes, may_be_unset);
      if (M.pipe == PIPE_V)
        (writes ? M.counts.vector_written : M.counts.vector_read) += bytes;
      return;
    }
  if (at >= M.gm[0].base && at < M.gm[M.tensors].base) {
    const Ref ref = gm_ref(p);
    if (!inside(ref.region, ref.at, bytes))
      return;
    touch(ref.region, ref.at, bytes, writes, may_be_unset);
    const Space inner = M.pipe == PIPE_V ? UB : GM; // by the vector unit itself: counted with its side
    if (writes)
      count_path(inner, GM, bytes);
    else
      count_path(GM, inner, bytes);
  }
}
inline void w2w_read(const void *p, uint64_t bytes, bool may_be_unset = false) { w2w_access(p, bytes, false, may_be_unset); }
inline void w2w_write(const void *p, uint64_t bytes) { w2w_access(p, bytes, true, false); }
inline void w2w_count_vector(uint64_t elements) { w2w::M.counts.vector_elements += elements; }

// Loads and stores of the compiled code come here (-fsanitize=thread); what is not UB or GM is a stack.
#define W2W_HOOK(bytes)                                                                                                \
  extern "C" void __tsan_read##bytes(void *p) { w2w_access(p, bytes, false, false); }                                    \
  extern "C" void __tsan_write##bytes(void *p) { w2w_access(p, bytes, true, false); }                                    \
  extern "C" void __tsan_unaligned_read##bytes(void *p) { w2w_access(p, bytes, false, false); }                          \
  extern "C" void __tsan_unaligned_write##bytes(void *p) { w2w_access(p, bytes, true, false); }
W2W_HOOK(1)
W2W_HOOK(2)
W2W_HOOK(4)
W2W_HOOK(8)
W2W_HOOK(16)
extern "C" void __tsan_init() {}
extern "C" void __tsan_vptr_update(void **, void *) {}
extern "C" void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
  w2w_read(from, bytes), w2w_write(to, bytes);
  return memcpy(to, from, bytes);
}
extern "C" void *__tsan_memmove(void *to, const void *from, size_t bytes) {
  w2w_read(from, bytes), w2w_write(to, bytes);
  return memmove(to, from, bytes);
}
extern "C" void *__tsan_memset(void *to, int value, size_t bytes) {
  w2w_write(to, bytes);
  return memset(to, value, bytes);
}

#pragma clang attribute pop
