# %% [markdown] top
# # 02 warps, wavefronts, memory, occupancy, roofline
