  // v1: this lane's number. Leave the sum of all 64 in s8.
  // BEGIN SOLUTION
  v_add_f32_dpp v1, v1, v1 row_shr:8
  s_nop 1
  v_add_f32_dpp v1, v1, v1 row_shr:4
  s_nop 1
  v_add_f32_dpp v1, v1, v1 row_shr:2
  s_nop 1
  v_add_f32_dpp v1, v1, v1 row_shr:1
  s_nop 1
  v_add_f32_dpp v1, v1, v1 row_bcast:15
  s_nop 1
  v_add_f32_dpp v1, v1, v1 row_bcast:31
  s_nop 0
  v_readlane_b32 s8, v1, 63
  // END SOLUTION
