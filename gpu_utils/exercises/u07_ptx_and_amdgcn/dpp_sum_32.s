  // v1: this lane's number. Leave the sum of all 32 in s8.
  // BEGIN SOLUTION
  v_add_f32_dpp v1, v1, v1 row_xmask:8
  v_add_f32_dpp v1, v1, v1 row_xmask:4
  v_add_f32_dpp v1, v1, v1 row_xmask:2
  v_add_f32_dpp v1, v1, v1 row_xmask:1
  v_permlanex16_b32 v2, v1, 0, 0
  v_add_f32 v1, v1, v2
  v_readlane_b32 s8, v1, 0
  // END SOLUTION
