"""Tiny files of each tool, written for this course: the worked examples of the lab."""

from __future__ import annotations

_TRACE = """\
{"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": [
 {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0.000, "args": {"name": "python"}},
 {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 100, "ts": 10.000, "dur": 50.000,
  "args": {"External id": 5}},
 {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 1, "tid": 100, "ts": 20.125, "dur": 6.500,
  "args": {"External id": 5, "cid": 211, "correlation": 7, "kernel": "gemm",
   "grid": [16, 16, 1], "block": [256, 1, 1]}},
 {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 1, "ts": 31.000, "dur": 12.250,
  "args": {"External id": 5, "device": 0, "stream": 1, "correlation": 7, "kind": "Dispatch Kernel"}},
 {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "pid": 0, "tid": 1, "ts": 44.000,
  "dur": 2.000, "args": {"device": 0, "stream": 1, "correlation": 9, "bytes": 4096}},
 {"ph": "X", "cat": "kernel", "name": "scale", "pid": 0, "tid": 2, "ts": 8.500, "dur": 3.000,
  "args": {"device": 0, "stream": 2, "correlation": 3, "grid": [4, 1, 1], "block": [128, 1, 1]}}],
 "traceName": "tiny.json"}
"""

_NCU = """\
==PROF== Connected to process 4242 (/tmp/app)
==PROF== Profiling "saxpy" - 0: 0%....100% - 3 passes
step 1, loss 2.5
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"Section Name","Metric Name","Metric Unit","Metric Value"
"0","4242","app","127.0.0.1","saxpy(int, float, float *)","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0",\
"Command line profiler metrics","dram__bytes.sum","Mbyte","12.5"
"0","4242","app","127.0.0.1","saxpy(int, float, float *)","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0",\
"Command line profiler metrics","gpu__time_duration.sum","nsecond","11,584"
==PROF== Disconnected from process 4242
"""

_NCU_WIDE = """\
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"dram__bytes.sum","gpu__time_duration.sum"
"","","","","","","","","","","","Mbyte","ns"
"0","4242","app","127.0.0.1","saxpy(int, float, float *)","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0",\
"12.5","11,584"
"""

_KERNEL_TRACE = """\
"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",\
"Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",\
"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH","Agent 4",1,0,100,2,12,"saxpy(int, float, float*)",9,1012000,1015500,0,0,8,0,16,96,1,1,1000,2,1
"KERNEL_DISPATCH","Agent 4",1,0,100,1,12,"saxpy(int, float, float*)",8,1000000,1012000,0,0,8,0,16,256,1,1,4096,1,1
"""

_COUNTERS = """\
"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id","Kernel_Name",\
"Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Counter_Name",\
"Counter_Value","Start_Timestamp","End_Timestamp"
8,1,"Agent 4",1,100,100,4096,12,"saxpy(int, float, float*)",256,0,0,8,0,16,"SQ_INSTS_VALU",640.000000,1000000,1012000
8,1,"Agent 4",1,100,100,4096,12,"saxpy(int, float, float*)",256,0,0,8,0,16,"FETCH_SIZE",2.500000,1000000,1012000
"""

FILES = {
    "trace.json": _TRACE,
    "ncu.csv": _NCU,
    "ncu_wide.csv": _NCU_WIDE,
    "kernel_trace.csv": _KERNEL_TRACE,
    "counters.csv": _COUNTERS,
}


def tiny_file(name: str) -> str:
    """The text of one of FILES.

    >>> tiny_file("ncu.csv").splitlines()[2]
    'step 1, loss 2.5'
    """
    return FILES[name]
