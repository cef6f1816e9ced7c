// Runs a kernel on every core of every block until all are done or none can go on, and writes what was found.
#pragma once

#include <unistd.h>

#include "w2w_core.h"

#pragma clang attribute push(W2W_QUIET, apply_to = function)

extern "C" void w2w_entry(void **tensors); // made with the kernel's text: calls it with its parameters
extern "C" const int w2w_mode;             // 3: a cube core and two vector cores, 1: cube cores only, 2: vector cores only

namespace w2w {
inline void **arguments;
inline void core_start() {
  w2w_entry(arguments);
  M.now->fiber.done = true;
}

inline void make_core(Core &core, int number, int kind, const int *spaces, int space_count) {
  memset(static_cast<void *>(&core), 0, sizeof core);
  core.block = number, core.kind = kind;
  for (int i = 0; i < LOCKS; ++i)
    core.locks[i].owner = -1;
  for (int i = 0; i < space_count; ++i) {
    const int space = spaces[i];
    Region *r = core.region[space] = static_cast<Region *>(calloc(1, sizeof(Region)));
    r->space = Space(space), r->core = int(&core - M.core), r->bytes = SPACE_BYTES[space], r->grain = GRAIN[space];
    r->base = static_cast<uint8_t *>(aligned_alloc(4096, space == UB ? UB_ROOM : r->bytes));
    memset(r->base, 0x5a, r->bytes); // what nobody wrote is not zero
    r->cells = static_cast<Cell *>(calloc(r->bytes / r->grain, sizeof(Cell)));
  }
  constexpr size_t STACK = 1 << 20;
  core.fiber.stack = static_cast<uint8_t *>(malloc(STACK));
  getcontext(&core.fiber.context);
  core.fiber.context.uc_stack.ss_sp = core.fiber.stack, core.fiber.context.uc_stack.ss_size = STACK;
  core.fiber.context.uc_link = &core.fiber.back;
  makecontext(&core.fiber.context, core_start, 0);
}

inline void schedule() {
  for (bool going = true; going;) {
    going = false;
    for (int c = 0; c < M.cores; ++c) {
      Core &core = M.core[c];
      if (core.fiber.done || (core.blocked && !core.blocked(core.blocked_on)))
        continue;
      M.now = &core, M.pipe = PIPE_S, M.line = 0;
      swapcontext(&core.fiber.back, &core.fiber.context);
      going = true;
    }
    M.now = &M.core[0];
    if (pump())
      going = true;
  }
}

// Whether an operation that still waits in a queue would set what this one waits for: then it is no cause.
inline bool to_be_set(const Op &op) {
  for (int c = 0; c < M.cores; ++c)
    for (int p = 0; p < PIPES; ++p) {
      Queue &queue = M.core[c].queue[p];
      for (size_t i = queue.head; i < queue.items.count; ++i)
        if (const Op &other = M.ops[queue.items[i].op]; other.sets_of == op.core && !strcmp(other.sets, op.awaits))
          return true;
    }
  return false;
}

// Locks whose holder has no release left to come: nothing else is to blame for what waits behind them.
inline bool held_for_ever() {
  bool any = false;
  for (int c = 0; c < M.cores; ++c)
    for (int i = 0; i < LOCKS; ++i) {
      Core &core = M.core[c];
      const int owner = core.locks[i].owner;
      if (owner < 0)
        continue;
      char released[56];
      snprintf(released, sizeof released, "lock %d", i);
      Queue &queue = core.queue[owner];
      bool comes = false;
      for (size_t w = queue.head; w < queue.items.count && !comes; ++w) {
        if (!strcmp(M.ops[queue.items[w].op].awaits, released))
          break; // it asks for the lock again before that
        comes = !strcmp(M.ops[queue.items[w].op].sets, released);
      }
      if (!comes)
        never_released(core, i), any = true;
    }
  return any;
}

inline void ends() {
  bool stuck = false;
  for (int c = 0; c < M.cores; ++c) {
    stuck |= !M.core[c].fiber.done;
    for (int p = 0; p < PIPES; ++p)
      stuck |= !M.core[c].queue[p].empty();
  }
  if (stuck && held_for_ever())
    return;
  for (int every = 0; every < 2 && !(stuck && M.faults.count); ++every)
    for (int c = 0; c < M.cores; ++c) {
      Core &core = M.core[c];
      if (!core.fiber.done)
        never_set(core, PIPE_S, core.blocked_line, core.blocked_for, every), stuck = true;
      for (int p = 0; p < PIPES; ++p)
        if (Queue &queue = core.queue[p]; !queue.empty()) {
          const Op &op = M.ops[queue.items[queue.head].op];
          stuck = true;
          if (every ? strncmp(op.awaits, "lock", 4) != 0 : !to_be_set(op))
            never_set(core, p, op.line, op.awaits, every);
        }
    }
  for (int c = 0; c < M.cores && !stuck; ++c)
    left_set(M.core[c]);
}

inline void quoted(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text; ++text)
    fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
  fputc('"', out);
}

inline void report(const char *path) {
  FILE *out = fopen(path, "w");
  fprintf(out, "{\"faults\":[");
  for (size_t i = 0; i < M.faults.count; ++i) {
    Fault &f = M.faults[i];
    fprintf(out, "%s{\"kind\":\"%s\",\"line\":%d,\"other\":%d,\"times\":%llu,\"sentence\":", i ? "," : "", f.kind, f.line, f.other, (unsigned long long)f.times);
    quoted(out, f.text);
    fprintf(out, ",\"missing\":");
    quoted(out, f.missing);
    fputc('}', out);
  }
  fprintf(out, "],\"counters\":{");
  for (int from = 0; from < 6; ++from)
    for (int to = 0; to < 6; ++to)
      if (M.counts.path[from][to])
        fprintf(out, "\"%s->%s\":%llu,", SPACE_NAMES[from], SPACE_NAMES[to], (unsigned long long)M.counts.path[from][to]);
  fprintf(out, "\"cube_flops\":%llu,\"vector_elements\":%llu,\"vector_read\":%llu,\"vector_written\":%llu,\"notifies\":%llu,\"waits\":%llu,\"arrives\":%llu,\"locks\":%llu},\"ops\":[",
          (unsigned long long)M.counts.cube_flops, (unsigned long long)M.counts.vector_elements, (unsigned long long)M.counts.vector_read,
          (unsigned long long)M.counts.vector_written, (unsigned long long)M.counts.notifies, (unsigned long long)M.counts.waits,
          (unsigned long long)M.counts.arrives, (unsigned long long)M.counts.locks);
  for (size_t i = 0; i < M.ops.count && i < 20000; ++i)
    fprintf(out, "%s[%d,%d,\"%s\",%d,%d,%llu,%u]", i ? "," : "", M.core[M.ops[i].core].block, M.core[M.ops[i].core].kind, M.ops[i].name, M.ops[i].pipe, M.ops[i].line,
            (unsigned long long)M.ops[i].bytes, M.ops[i].step);
  fprintf(out, "]}");
  fclose(out);
}
inline const char *report_path;
inline void no_end() {
  if (Fault *f = fault("no end", M.line, 0))
    snprintf(f->text, sizeof f->text, "line %d: the kernel has issued %zu operations and goes on; does its loop end?", M.line, M.ops.count);
  report(report_path);
  _exit(0);
}
} // namespace w2w

// bases: where each tensor lies, and after the last one the end of the room; grains: bytes of an element.
extern "C" int w2w_run(int blocks, int tensors, void **bases, const uint64_t *bytes, const int *grains, const char *path) {
  using namespace w2w;
  M.blocks = blocks, M.per_block = w2w_mode == 3 ? 3 : 1, M.cores = blocks * M.per_block, M.threads = M.cores * PIPES;
  M.core = static_cast<Core *>(calloc(M.cores, sizeof(Core)));
  M.clock = static_cast<Clock *>(calloc(M.threads, sizeof(Clock)));
  M.finished = static_cast<uint32_t *>(calloc(M.threads, sizeof(uint32_t)));
  for (int t = 0; t < M.threads; ++t) {
    M.clock[t] = fresh_clock();
    M.clock[t][t] = 1;
  }
  M.tensors = tensors;
  M.gm = static_cast<Region *>(calloc(tensors + 1, sizeof(Region)));
  for (int i = 0; i < tensors; ++i) {
    M.gm[i] = {GM, 0, i, static_cast<uint8_t *>(bases[i]), bytes[i], uint64_t(grains[i]), nullptr};
    M.gm[i].cells = static_cast<Cell *>(calloc(bytes[i] / grains[i] + 1, sizeof(Cell)));
  }
  M.gm[tensors].base = static_cast<uint8_t *>(bases[tensors]);
  M.ops.add() = {"the start", 0, PIPE_S, 0, 0, "", "", -1, 0};
  arguments = bases, report_path = path;
  const int cube[] = {L1, L0A, L0B, L0C}, vector[] = {UB};
  for (int c = 0; c < M.cores; ++c) {
    const int kind = w2w_mode == 3 ? c % 3 : w2w_mode == 1 ? 0 : 1;
    if (kind == 0)
      make_core(M.core[c], c / M.per_block, kind, cube, 4);
    else
      make_core(M.core[c], c / M.per_block, kind, vector, 1);
  }
  schedule();
  ends();
  report(path);
  return int(M.faults.count);
}

#pragma clang attribute pop
