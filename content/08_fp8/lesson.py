# %% [markdown] top
# # Lesson 08: FP8
