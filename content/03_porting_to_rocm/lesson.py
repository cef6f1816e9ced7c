# %% [markdown] top
# # 03 from CUDA to ROCm
