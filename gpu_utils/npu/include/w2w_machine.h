// The machine under a virtual AI core: cores as fibers, pipes as queues, vector clocks, a shadow of every memory.
//
// A core's scalar unit runs the kernel's text and issues operations to pipes. A pipe works in order. What orders two
// pipes is a flag, a lock or a barrier, and nothing else: each pipe has a vector clock, each byte remembers who wrote
// and read it last, and an access that no clock orders after the last one is a fault, whatever came out.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define W2W_QUIET __attribute__((no_sanitize("thread")))
#pragma clang attribute push(W2W_QUIET, apply_to = function)

inline void *operator new(size_t, void *place) noexcept { return place; }

enum pipe_t { PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_FIX, PIPE_ALL };

namespace w2w {

constexpr int PIPES = 7, FLAGS = 16, LOCKS = 32, CHANNELS = 32, READERS = 3;
constexpr const char *PIPE_NAMES[] = {"PIPE_S", "PIPE_V", "PIPE_M", "PIPE_MTE1", "PIPE_MTE2", "PIPE_MTE3", "PIPE_FIX"};

// A list that grows; no standard library is linked.
template <class T> struct List {
  T *items = nullptr;
  size_t count = 0, room = 0;
  T &operator[](size_t i) { return items[i]; }
  T &add() {
    if (count == room) {
      room = room ? 2 * room : 8;
      items = static_cast<T *>(realloc(static_cast<void *>(items), room * sizeof(T)));
    }
    return items[count++];
  }
};

// Work with its captured arguments, to run now or later.
struct Job {
  void *data;
  bool (*ready)(void *);
  void (*run)(void *);
};
template <class Ready, class Run> struct Held {
  Ready ready;
  Run run;
};
template <class Ready, class Run> Job hold(Ready ready, Run run) {
  using H = Held<Ready, Run>;
  void *place = malloc(sizeof(H));
  new (place) H{ready, run};
  return {place, [](void *p) { return bool(static_cast<H *>(p)->ready()); }, [](void *p) { static_cast<H *>(p)->run(); }};
}

typedef uint32_t *Clock; // one number for each pipe of each core, and last the step at which all of it is done

struct Op {
  const char *name;
  int core, pipe, line;
  uint64_t bytes;
  char awaits[56], sets[56]; // the flag, arrival or lock that it waits for or sets
  int sets_of;               // of which core
  uint32_t step;             // when it could start at the earliest, if every operation took one step
};
struct Waiting {
  Job job;
  uint32_t op;
  Clock issued;
};
struct Queue {
  List<Waiting> items;
  size_t head = 0;
  bool empty() { return head == items.count; }
};
struct Flag {
  List<Clock> set;
  size_t taken = 0;
  int line = 0;
  size_t waiting() { return set.count - taken; }
};
struct Lock {
  int owner = -1, line = 0;
  uint32_t asked = 0, given = 0; // in the order of the kernel's text
  Clock released = nullptr;
};

enum Space { GM, L1, L0A, L0B, L0C, UB };
constexpr const char *SPACE_NAMES[] = {"GM", "L1", "L0A", "L0B", "L0C", "UB"};
constexpr uint64_t SPACE_BYTES[] = {0, W2W_L1, W2W_L0A, W2W_L0B, W2W_L0C, W2W_UB};
constexpr uint64_t GRAIN[] = {0, 32, 32, 32, 32, 1}; // bytes that the shadow takes as one; of GM: an element

constexpr uint16_t MANY = 0xffff;
struct Access {
  uint32_t epoch;
  uint32_t op;
  uint16_t thread; // 0: none
  uint16_t lane;   // which thread of a vector function, from 1 on; 0: none, MANY: several
  uint32_t phase;  // how many barriers of a vector function's threads came before
  bool unset;      // a read of what nobody had written
};
struct Cell {
  Access wrote, read[READERS];
};

struct Region {
  Space space;
  int core, number; // whose; of GM: which tensor
  uint8_t *base;
  uint64_t bytes, grain;
  Cell *cells;
};

struct Fiber {
  ucontext_t context, back;
  uint8_t *stack;
  bool done;
};

struct Core {
  int block, kind; // kind: 0 the cube core, 1 and 2 the vector cores
  Fiber fiber;
  bool (*blocked)(void *);
  void *blocked_on;
  int blocked_line;
  char blocked_for[56];
  Region *region[6];
  Queue queue[PIPES];
  Flag flags[PIPES][PIPES][FLAGS];
  Flag channels[CHANNELS]; // from the other cores of the block
  Lock locks[LOCKS];
  Clock unit_from_m, unit_from_fix;
  uint32_t unit_m, unit_fix, unit_filled, unit_drained; // unit flags: products that end one, drains; of them finished
  uint32_t arrived[CHANNELS], across[CHANNELS];         // at barriers over all blocks, and how many this core has passed
  uint16_t nz_n_stride, nz_c0_stride;
  uint64_t pad_value;
  int atomic; // 0 none, 1 add, 2 max, 3 min
};

struct Counters {
  uint64_t path[6][6], cube_flops, vector_elements, vector_read, vector_written, notifies, waits, arrives, locks;
};

struct Fault {
  const char *kind;
  char text[600], missing[300];
  int line, other;
  uint64_t times;
};

struct State {
  int blocks, cores, threads, per_block;
  Core *core; // of all cores
  Core *now;  // the one that runs
  int pipe, line;
  uint32_t op; // the operation that runs
  uint16_t lane; // the thread of a vector function that runs, from 1 on; 0: none
  uint32_t phase; // counts the barriers of all such threads
  uint64_t set_reads, unset_reads, unset_at; // what a vector function has read of UB: bytes written before, and never
  Clock *clock;
  uint32_t *finished; // of each pipe: up to where its own operations are known to it to be finished
  List<Op> ops;
  List<Fault> faults;
  Region *gm;
  int tensors;
  Counters counts;
  bool pumping;
};
inline constinit State M{};

inline Clock fresh_clock() { return static_cast<Clock>(calloc(M.threads + 1, sizeof(uint32_t))); }
inline Clock copy_clock(Clock from) {
  Clock made = fresh_clock();
  memcpy(made, from, (M.threads + 1) * sizeof(uint32_t));
  return made;
}
inline void join(Clock into, Clock from) {
  for (int i = 0; i <= M.threads; ++i)
    if (from[i] > into[i])
      into[i] = from[i];
}
// A pipe learns what another knew: also which of its own operations were finished by then.
inline void learn(int thread, Clock from) {
  join(M.clock[thread], from);
  if (from[thread] > M.finished[thread])
    M.finished[thread] = from[thread];
}
inline int thread_of(Core *core, int pipe) { return int(core - M.core) * PIPES + pipe; }
inline Clock clock_of(Core *core, int pipe) { return M.clock[thread_of(core, pipe)]; }

// ---------------------------------------------------------------------------------------------------- faults

inline const char *core_name(int number) {
  static char names[8][40];
  static int next = 0;
  char *text = names[next++ % 8];
  Core &core = M.core[number];
  const char *kind = core.kind == 0 ? "the cube core" : core.kind == 1 ? "vector core 0" : "vector core 1";
  if (M.blocks > 1)
    snprintf(text, 40, "%s of block %d", kind, core.block);
  else
    snprintf(text, 40, "%s", kind);
  return text;
}

inline Fault *fault(const char *kind, int line, int other) {
  for (size_t i = 0; i < M.faults.count; ++i)
    if (M.faults[i].kind == kind && M.faults[i].line == line && M.faults[i].other == other) {
      M.faults[i].times++;
      return nullptr;
    }
  if (M.faults.count >= 40)
    return nullptr;
  Fault &made = M.faults.add();
  memset(&made, 0, sizeof made);
  made.kind = kind, made.line = line, made.other = other, made.times = 1;
  return &made;
}

inline void say_missing(Fault *f, const Op &first, const Op &second) {
  Core &a = M.core[first.core], &b = M.core[second.core];
  const char *from = PIPE_NAMES[first.pipe], *to = PIPE_NAMES[second.pipe];
  if (first.core == second.core && first.pipe == second.pipe)
    snprintf(f->missing, sizeof f->missing, "asc_sync_pipe(%s) before line %d", to, second.line);
  else if (first.core == second.core)
    snprintf(f->missing, sizeof f->missing, "asc_sync_notify(%s, %s, id) after line %d and asc_sync_wait(%s, %s, id) before line %d", from, to,
             first.line, from, to, second.line);
  else if (a.block == b.block)
    snprintf(f->missing, sizeof f->missing,
             "asc_sync_intra_arrive(%s, id) after line %d and asc_sync_intra_wait(%s, id) on the other core before line %d", from, first.line, to,
             second.line);
  else
    snprintf(f->missing, sizeof f->missing, "asc_sync_inter_arrive(%s, id) after line %d and asc_sync_inter_wait(%s, id) before line %d, in every block", from,
             first.line, to, second.line);
}

inline const char *place_name(Region *r, uint64_t at, char *text, size_t room) {
  if (r->space == GM)
    snprintf(text, room, "element %llu of tensor %d", (unsigned long long)(at / r->grain), r->number);
  else
    snprintf(text, room, "%s byte %llu", SPACE_NAMES[r->space], (unsigned long long)at);
  return text;
}

inline void conflict(Region *r, uint64_t at, const Access &earlier, bool first_wrote, bool now_writes) {
  const Op &a = M.ops[earlier.op], &b = M.ops[M.op];
  const char *kind = first_wrote && !now_writes ? "not ready" : first_wrote ? "written twice" : "overwritten";
  char place[80];
  place_name(r, at, place, sizeof place);
  if (earlier.unset) { // it came too early, because nothing made it wait for this write
    Fault *f = fault("not ready", a.line, b.line);
    if (!f)
      return;
    snprintf(f->text, sizeof f->text, "line %d, %s on %s (%s) reads what no flag has made ready: %s is only written by line %d, %s on %s (%s)", a.line,
             a.name, PIPE_NAMES[a.pipe], core_name(a.core), place, b.line, b.name, PIPE_NAMES[b.pipe], core_name(b.core));
    return say_missing(f, b, a);
  }
  Fault *f = fault(kind, b.line, a.line);
  if (!f)
    return;
  const char *why = first_wrote && !now_writes ? "reads what no flag has made ready"
                    : first_wrote               ? "writes over a write that nothing orders before it"
                                                : "overwrites what another pipe may still be reading";
  snprintf(f->text, sizeof f->text, "line %d, %s on %s (%s) %s: %s was %s by line %d, %s on %s (%s)", b.line, b.name, PIPE_NAMES[b.pipe],
           core_name(b.core), why, place, first_wrote ? "written" : "read", a.line, a.name, PIPE_NAMES[a.pipe], core_name(a.core));
  say_missing(f, a, b);
}

// Two threads of one vector function, with no barrier between them.
inline void conflict_of_threads(Region *r, uint64_t at, const Access &earlier, bool first_wrote, bool now_writes) {
  const Op &op = M.ops[M.op];
  Fault *f = fault(first_wrote && !now_writes ? "not ready" : first_wrote ? "written twice" : "overwritten", op.line, op.line);
  if (!f)
    return;
  char place[80], other[32] = "other threads";
  place_name(r, at, place, sizeof place);
  if (earlier.lane != MANY)
    snprintf(other, sizeof other, "thread %d", earlier.lane - 1);
  snprintf(f->text, sizeof f->text, "line %d, %s on %s: thread %d %s %s, which %s %s, and no barrier of the threads is between the two", op.line, op.name,
           core_name(op.core), M.lane - 1, now_writes ? "writes" : "reads", place, other, first_wrote ? "wrote" : "read");
  snprintf(f->missing, sizeof f->missing, "asc_syncthreads() between the two");
}

// ---------------------------------------------------------------------------------------------------- memory

// What a pipe of copies was given first need not be finished first; the scalar, the vector and the matrix pipe keep order.
inline bool keeps_order(int pipe) { return pipe == PIPE_S || pipe == PIPE_V || pipe == PIPE_M; }

inline void unwritten(Space space, uint64_t at) {
  const Op &b = M.ops[M.op];
  if (Fault *f = fault("never written", b.line, int(space)))
    snprintf(f->text, sizeof f->text, "line %d, %s on %s (%s) reads %s byte %llu, which nothing has written", b.line, b.name,
             PIPE_NAMES[b.pipe], core_name(b.core), SPACE_NAMES[space], (unsigned long long)at);
}

inline void touch(Region *r, uint64_t at, uint64_t bytes, bool writes, bool may_be_unset = false) {
  if (!bytes)
    return;
  const int mine = thread_of(M.now, M.pipe);
  Clock known = M.clock[mine];
  const uint32_t now = known[mine], own = keeps_order(M.pipe) ? now : M.finished[mine];
  // an access that nothing orders before this operation; what the operation did itself is no other access
  const auto loose = [=](const Access &one) {
    const int thread = one.thread - 1;
    return thread >= 0 && (thread == mine ? one.epoch != now && own < one.epoch : known[thread] < one.epoch);
  };
  const uint16_t lane = M.lane;
  const uint32_t phase = M.phase;
  const auto beside = [=](const Access &one) { return one.thread - 1 == mine && one.epoch == now && one.phase == phase && one.lane != lane; };
  const uint64_t last = (at + bytes - 1) / r->grain;
  for (uint64_t i = at / r->grain; i <= last; ++i) {
    Cell &cell = r->cells[i];
    Access &w = cell.wrote;
    if (loose(w))
      conflict(r, i * r->grain, w, true, writes);
    else if (beside(w))
      conflict_of_threads(r, i * r->grain, w, true, writes);
    if (writes) {
      for (Access &one : cell.read) {
        if (loose(one))
          conflict(r, i * r->grain, one, false, true);
        else if (beside(one))
          conflict_of_threads(r, i * r->grain, one, false, true);
        one.thread = 0;
      }
      w = {now, M.op, uint16_t(mine + 1), lane, phase, false};
      continue;
    }
    if (M.pipe == PIPE_V && r->space == UB) // a tile's last rows may be loaded in part: see on_vector
      w.thread ? M.set_reads++ : M.unset_reads++ ? 0 : M.unset_at = i * r->grain;
    else if (!w.thread && r->space != GM && !may_be_unset)
      unwritten(r->space, i * r->grain);
    Access *slot = &cell.read[0];
    for (Access &one : cell.read) {
      if (one.thread - 1 == mine || !one.thread || known[one.thread - 1] >= one.epoch) {
        slot = &one;
        break;
      }
    }
    *slot = {now, M.op, uint16_t(mine + 1), beside(*slot) ? MANY : lane, phase, !w.thread && r->space != GM};
  }
}

// Whether [at, at + bytes) lies inside; says so where it does not.
inline bool inside(Region *r, uint64_t at, uint64_t bytes) {
  if (at <= r->bytes && bytes <= r->bytes - at)
    return true;
  const Op &b = M.ops[M.op];
  if (Fault *f = fault("out of bounds", b.line, int(r->space))) {
    if (r->space == GM)
      snprintf(f->text, sizeof f->text, "line %d, %s on %s (%s) goes beyond tensor %d: bytes %lld to %lld of %llu", b.line, b.name,
               PIPE_NAMES[b.pipe], core_name(b.core), r->number, (long long)at, (long long)(at + bytes), (unsigned long long)r->bytes);
    else
      snprintf(f->text, sizeof f->text, "line %d, %s on %s (%s) overflows %s: bytes %lld to %lld, and it has %llu", b.line, b.name,
               PIPE_NAMES[b.pipe], core_name(b.core), SPACE_NAMES[r->space], (long long)at, (long long)(at + bytes), (unsigned long long)r->bytes);
  }
  return false;
}

inline Region *gm_region(const void *pointer) {
  // the nearest tensor that starts before the pointer, or the first: an address in a gap belongs to its neighbour
  Region *best = &M.gm[0];
  for (int i = 0; i < M.tensors; ++i)
    if (static_cast<const uint8_t *>(pointer) >= M.gm[i].base && M.gm[i].base >= best->base)
      best = &M.gm[i];
  return best;
}

constexpr uint64_t UB_ROOM = 1 << 20; // a core's UB with the gap behind it, in which an overflow is seen

struct Ref {
  Region *region;
  uint64_t at;
};
inline Ref gm_ref(const void *p) {
  Region *r = gm_region(p);
  return {r, uint64_t(static_cast<const uint8_t *>(p) - r->base)};
}
// A pointer into L1, L0A, L0B or L0C is an offset.
inline Ref local_ref(Space space, const void *p) { return {M.now->region[space], uint64_t(reinterpret_cast<uintptr_t>(p))}; }
inline Region *ub_home(Core *core) { return M.core[core->block * M.per_block + (M.per_block == 3 && core->kind == 0 ? 1 : core - &M.core[core->block * M.per_block])].region[UB]; }
inline Ref ub_ref(const void *p) {
  Region *r = M.now->region[UB] ? M.now->region[UB] : ub_home(M.now);
  return {r, uint64_t(static_cast<const uint8_t *>(p) - r->base)};
}

inline bool aligned(Ref ref, uint64_t unit, const char *what) {
  if (ref.at % unit == 0)
    return true;
  const Op &b = M.ops[M.op];
  if (Fault *f = fault("misaligned", b.line, int(ref.region->space)))
    snprintf(f->text, sizeof f->text, "line %d, %s: %s starts at %s byte %llu, and must start at a multiple of %llu", b.line, b.name, what,
             SPACE_NAMES[ref.region->space], (unsigned long long)ref.at, (unsigned long long)unit);
  return false;
}

inline void count_path(Space from, Space to, uint64_t bytes) {
  M.counts.path[from][to] += bytes;
  M.ops[M.op].bytes += bytes;
}

// Copies bytes between two memories and tells the shadow; nothing happens where one end lies outside.
inline void move(Ref to, Ref from, uint64_t bytes) {
  if (!inside(from.region, from.at, bytes) || !inside(to.region, to.at, bytes))
    return;
  touch(from.region, from.at, bytes, false);
  touch(to.region, to.at, bytes, true);
  memcpy(to.region->base + to.at, from.region->base + from.at, bytes);
}

// ---------------------------------------------------------------------------------------------------- pipes

inline void switch_back() { swapcontext(&M.now->fiber.context, &M.now->fiber.back); }

// The scalar unit stops until the condition holds; other cores run meanwhile.
template <class Ready> void block_until(Ready ready, const char *what) {
  Core *core = M.now;
  const int line = M.line, pipe = M.pipe;
  const uint32_t op = M.op;
  core->blocked_on = &ready;
  core->blocked = [](void *p) { return bool((*static_cast<Ready *>(p))()); };
  core->blocked_line = line;
  snprintf(core->blocked_for, sizeof core->blocked_for, "%s", what);
  while (!ready())
    switch_back();
  core->blocked = nullptr;
  M.line = line, M.pipe = pipe, M.op = op;
}

inline void run_on(Core *core, int pipe, uint32_t op, Clock issued, Job job) {
  Core *before = M.now;
  const int old_pipe = M.pipe;
  const uint32_t old_op = M.op;
  M.now = core, M.pipe = pipe, M.op = op;
  const int thread = thread_of(core, pipe);
  learn(thread, issued);
  M.clock[thread][thread]++;
  job.run(job.data);
  M.ops[op].step = M.clock[thread][M.threads];
  if (!strncmp(M.ops[op].name, "asc_copy", 8) || !strncmp(M.ops[op].name, "asc_mmad", 8) || !strncmp(M.ops[op].name, "vector", 6))
    M.clock[thread][M.threads]++;
  free(job.data);
  M.now = before, M.pipe = old_pipe, M.op = old_op;
}

// Runs what can run, on every pipe of every core; whether anything did.
inline bool pump() {
  if (M.pumping)
    return false;
  M.pumping = true;
  bool any = false, more = true;
  while (more) {
    more = false;
    for (int c = 0; c < M.cores; ++c)
      for (int p = 0; p < PIPES; ++p) {
        Queue &queue = M.core[c].queue[p];
        while (!queue.empty() && queue.items[queue.head].job.ready(queue.items[queue.head].job.data)) {
          Waiting w = queue.items[queue.head++];
          run_on(&M.core[c], p, w.op, w.issued, w.job);
          free(w.issued);
          any = more = true;
        }
      }
  }
  M.pumping = false;
  return any;
}

constexpr size_t MOST_OPS = 1'000'000;
void no_end(); // ends the process with a report

inline uint32_t new_op(const char *name, int pipe) {
  if (M.ops.count == MOST_OPS)
    no_end();
  const uint32_t number = uint32_t(M.ops.count);
  M.ops.add() = {name, int(M.now - M.core), pipe, M.line, 0, "", "", -1, 0};
  return number;
}

// An operation for a pipe of the core that runs: at once if the pipe is free and it is ready, else in its turn.
template <class Ready, class Run> void issue_when(const char *name, int pipe, const char *awaits, Ready ready, Run run, const char *sets = "", int sets_of = -1) {
  Core *core = M.now;
  const uint32_t op = new_op(name, pipe);
  snprintf(M.ops[op].awaits, sizeof M.ops[op].awaits, "%s", awaits);
  snprintf(M.ops[op].sets, sizeof M.ops[op].sets, "%s", sets);
  M.ops[op].sets_of = sets_of;
  if (pipe == PIPE_S) {
    if (!ready())
      block_until(ready, M.ops[op].awaits);
    M.op = op;
    clock_of(core, PIPE_S)[thread_of(core, PIPE_S)]++;
    run();
    pump();
    return;
  }
  Job job = hold(ready, run);
  Queue &queue = core->queue[pipe];
  if (queue.empty() && ready()) {
    run_on(core, pipe, op, clock_of(core, PIPE_S), job);
  } else {
    Waiting &w = queue.items.add();
    w = {job, op, copy_clock(clock_of(core, PIPE_S))};
  }
  pump();
}
template <class Run> void issue(const char *name, int pipe, Run run, const char *sets = "", int sets_of = -1) {
  issue_when(name, pipe, "", [] { return true; }, run, sets, sets_of);
}

inline Clock my_clock() { return clock_of(M.now, M.pipe); }
inline void set(Flag &flag) {
  flag.set.add() = copy_clock(my_clock());
  flag.line = M.ops[M.op].line;
}
inline void take(Flag &flag) {
  Clock from = flag.set[flag.taken++];
  learn(thread_of(M.now, M.pipe), from);
  free(from);
}

inline void never_released(Core &core, int id) {
  Lock &lock = core.locks[id];
  if (Fault *f = fault("left locked", lock.line, 2000 + id)) {
    snprintf(f->text, sizeof f->text, "lock %d of %s, taken by %s in line %d, is never released", id, core_name(int(&core - M.core)),
             PIPE_NAMES[lock.owner], lock.line);
    snprintf(f->missing, sizeof f->missing, "asc_unlock(%s, %d, ASC_LOCK_BLOCK)", PIPE_NAMES[lock.owner], id);
  }
}

inline void left_set(Core &core) {
  for (int s = 0; s < PIPES; ++s)
    for (int d = 0; d < PIPES; ++d)
      for (int i = 0; i < FLAGS; ++i)
        if (Flag &flag = core.flags[s][d][i]; flag.waiting())
          if (Fault *f = fault("left set", flag.line, s * 100 + d * 10 + i)) {
            snprintf(f->text, sizeof f->text, "flag (%s, %s, %d) of %s was set %zu times and taken %zu times: the last set, line %d, is left for the next kernel",
                     PIPE_NAMES[s], PIPE_NAMES[d], i, core_name(int(&core - M.core)), flag.set.count, flag.taken, flag.line);
            snprintf(f->missing, sizeof f->missing, "asc_sync_wait(%s, %s, %d) at the end", PIPE_NAMES[s], PIPE_NAMES[d], i);
          }
  for (int i = 0; i < CHANNELS; ++i)
    if (Flag &flag = core.channels[i]; flag.waiting())
      if (Fault *f = fault("left set", flag.line, 1000 + i)) {
        snprintf(f->text, sizeof f->text, "%s is left with %zu arrivals on id %d that it never waited for; the last came from line %d",
                 core_name(int(&core - M.core)), flag.waiting(), i, flag.line);
        snprintf(f->missing, sizeof f->missing, "asc_sync_intra_wait(pipe, %d) at the end", i);
      }
  for (int i = 0; i < LOCKS; ++i)
    if (core.locks[i].owner >= 0)
      never_released(core, i);
}

// What the API has and this machine does not do: said by name, and the operation is left out.
inline void refuse(const char *name) {
  if (Fault *f = fault("not modelled", M.line, int(reinterpret_cast<uintptr_t>(name)))) // each name once a line
    snprintf(f->text, sizeof f->text, "line %d: the virtual AI core does not model %s", M.line, name);
}

// circle: what would set it waits, in the end, for this wait.
inline void never_set(Core &core, int pipe, int line, const char *what, bool circle) {
  Fault *f = fault("never set", line, pipe);
  if (!f)
    return;
  snprintf(f->text, sizeof f->text, "line %d: %s of %s waits for ever for %s, which %s", line, PIPE_NAMES[pipe], core_name(int(&core - M.core)), what,
           circle ? "is set only by what waits for this pipe in turn" : "nothing sets from here on");
  if (circle)
    snprintf(f->missing, sizeof f->missing, "a first set before the loop, for the flag that says 'free'");
}

} // namespace w2w
#pragma clang attribute pop
