// Sizes that kernels and launchers share.
#pragma once

namespace normq {

constexpr int kHidden = 768;     // width of GPT-2
constexpr int kThreads = 256;    // threads of a block
constexpr int kTileTokens = 32;  // tokens that one block stages in shared memory
constexpr int kStageBytes = kTileTokens * kHidden * static_cast<int>(sizeof(float));  // 96 KB

}  // namespace normq
