// In place of TileLang's header of this name: rows in UB become columns of 32 bytes, which asc_copy_ub2l1 carries to L1.
#pragma once
#include "w2w_simt.h"

#pragma clang attribute push(W2W_QUIET, apply_to = function)

// Block (row, d) of 32 bytes goes to block d (ROWS + 1) + row: one row more than there are keeps columns out of each
// other's banks, and the copy that follows skips it.
template <int ROWS, int COLS, class From, class To> void ascend_nd2nz_scatter(From *from, To *to) {
  static_assert(ROWS % 16 == 0 && COLS * sizeof(To) % 32 == 0, "ascend_nd2nz_scatter: whole blocks of 16 rows and 32 bytes");
  w2w::issue("ascend_nd2nz_scatter", PIPE_V, [=] {
    constexpr int C0 = 32 / sizeof(To);
    for (int row = 0; row < ROWS; ++row)
      for (int d = 0; d < COLS / C0; ++d) {
        const From *source = from + row * COLS + d * C0;
        To *target = to + (d * (ROWS + 1) + row) * C0;
        w2w_read(source, C0 * sizeof(From)), w2w_write(target, 32);
        for (int i = 0; i < C0; ++i)
          target[i] = To(source[i]);
      }
    w2w_count_vector(uint64_t(ROWS) * COLS);
  });
}

#pragma clang attribute pop
