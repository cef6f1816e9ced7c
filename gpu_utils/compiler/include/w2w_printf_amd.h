// printf for AMD: what ROCm's device library ockl does, in small.
//
// A message is a row of 64-bit words: 0 (for stdout), the format, the arguments; strings are padded to whole words. It
// goes to the host in packets of up to seven words of each lane. gpu_utils/virtual/amdgcn/hostcall.py has the layouts.
#pragma once

#define __W2W_GLOBAL __attribute__((address_space(1)))
#define __W2W_CONSTANT __attribute__((address_space(4)))

struct __w2w_packet {
  uint64_t next, lanes;
  uint32_t service, control;
};
struct __w2w_signal {
  int64_t kind, value;
  __W2W_GLOBAL uint64_t *mailbox;
  uint32_t event;
};
struct __w2w_host {
  __W2W_GLOBAL __w2w_packet *packets;
  __W2W_GLOBAL uint64_t *words;  // of each packet 64 lanes with 8 words
  __W2W_GLOBAL __w2w_signal *bell;
  uint64_t free, ready, mask;
};

__W2W uint64_t __w2w_uniform(uint64_t value) {
  uint64_t high = (uint32_t)__builtin_amdgcn_readfirstlane((uint32_t)(value >> 32));
  return high << 32 | (uint32_t)__builtin_amdgcn_readfirstlane((uint32_t)value);
}

// A packet is named by its index and, above `mask`, a tag; `stack` holds the name of the last one that was put there.
__W2W void __w2w_push(__W2W_GLOBAL uint64_t *stack, __W2W_GLOBAL __w2w_packet *packet, uint64_t name) {
  uint64_t last = __atomic_load_n(stack, __ATOMIC_RELAXED);
  do packet->next = last;
  while (!__atomic_compare_exchange_n(stack, &last, name, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

// Sends a descriptor and seven words of every running lane; returns the first word of the host's answer.
static __device__ __attribute__((noinline)) uint64_t __w2w_send(uint64_t descriptor, const uint64_t *words) {
  auto *implicit = (const __W2W_CONSTANT char *)__builtin_amdgcn_implicitarg_ptr();
  auto *host = *(__W2W_GLOBAL __w2w_host *const __W2W_CONSTANT *)(implicit + 80);
  unsigned lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  uint64_t lanes = __builtin_amdgcn_read_exec();
  bool first = lane == (unsigned)__builtin_amdgcn_readfirstlane(lane);
  uint64_t name = 0;
  if (first) {
    name = __atomic_load_n(&host->free, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(&host->free, &name, host->packets[name & host->mask].next, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
    }
  }
  name = __w2w_uniform(name);
  auto *packet = host->packets + (name & host->mask);
  auto *mine = host->words + (name & host->mask) * 512 + lane * 8;
  mine[0] = descriptor;
  for (int i = 0; i < 7; ++i) mine[i + 1] = words[i];
  if (first) {
    packet->lanes = lanes;
    packet->service = 2;
    packet->control = 1;
    __w2w_push(&host->ready, packet, name);
    __atomic_fetch_add(&host->bell->value, 1, __ATOMIC_RELEASE);
    if (host->bell->mailbox) {
      uint32_t event = host->bell->event;
      __atomic_store_n(host->bell->mailbox, (uint64_t)event, __ATOMIC_RELEASE);
      __builtin_amdgcn_s_sendmsg(1, __builtin_amdgcn_readfirstlane(event) & 0xFFFFFF);
    }
    while (__atomic_load_n(&packet->control, __ATOMIC_ACQUIRE) & 1) __builtin_amdgcn_s_sleep(1);
  }
  __builtin_amdgcn_wave_barrier();
  uint64_t answer = mine[0];
  if (first) {
    uint64_t next = name + host->mask + 1;  // the next tag, so that nobody mistakes the packet for the one it took
    __w2w_push(&host->free, packet, next ? next : host->mask + 1);
  }
  return answer;
}

struct __w2w_message {
  uint64_t descriptor = 1, words[7];  // bit 0: begins, bit 1: ends, bits 5 to 7: words, from bit 8: given by the host
  unsigned count = 0;

  __device__ void send(uint64_t ends) {
    descriptor = __w2w_send((descriptor & ~0xE2ull) | count << 5 | ends, words);
    count = 0;
  }
  __device__ void add(uint64_t word) {
    if (count == 7) send(0);
    words[count++] = word;
  }
  __device__ void put(const char *text) {
    uint64_t word = 0;
    unsigned at = 0;
    char letter;
    do {
      letter = *text++;
      word |= (uint64_t)(unsigned char)letter << 8 * at;
      if (++at == 8) {
        add(word);
        word = at = 0;
      }
    } while (letter);
    if (at) add(word);
  }
  __device__ void put(char *text) { put((const char *)text); }
  __device__ void put(double value) { add(__builtin_bit_cast(uint64_t, value)); }
  __device__ void put(float value) { put((double)value); }
  template <typename T>
  __device__ void put(T *pointer) {
    add((uint64_t)pointer);
  }
  template <typename T>
  __device__ void put(T integer) {
    add((uint64_t)(int64_t)integer);
  }
};

template <typename... T>
static __device__ __attribute__((noinline)) int printf(const char *format, T... values) {
  __w2w_message message;
  message.add(0);
  message.put(format);
  (message.put(values), ...);
  message.send(2);
  return (int)message.descriptor;
}
