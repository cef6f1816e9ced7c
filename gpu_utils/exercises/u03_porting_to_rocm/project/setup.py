"""Builds the extension `normq`: python setup.py build_ext --inplace."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

SOURCES = ["csrc/binding.cpp", "csrc/comm.cpp", "csrc/launch.cu"]
LIBRARIES = ["cublas", "nccl", "nvToolsExt"]
DEVICE_FLAGS = ["-O3", "--use_fast_math", "-lineinfo", "-gencode=arch=compute_80,code=sm_80"]

setup(
    name="normq",
    ext_modules=[
        CUDAExtension(
            "normq",
            SOURCES,
            libraries=LIBRARIES,
            extra_compile_args={"cxx": ["-O3"], "nvcc": DEVICE_FLAGS},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
