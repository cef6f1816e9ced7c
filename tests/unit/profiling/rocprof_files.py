"""Small files in the shapes that AMD's profilers write, for the tests of their readers."""

TRACE = str.split(
    "Kind Agent_Id Queue_Id Stream_Id Thread_Id Dispatch_Id Kernel_Id Kernel_Name Correlation_Id Start_Timestamp "
    "End_Timestamp LDS_Block_Size Scratch_Size VGPR_Count Accum_VGPR_Count SGPR_Count Workgroup_Size_X "
    "Workgroup_Size_Y Workgroup_Size_Z Grid_Size_X Grid_Size_Y Grid_Size_Z"
)
COUNTERS = str.split(
    "Correlation_Id Dispatch_Id Agent_Id Queue_Id Process_Id Thread_Id Grid_Size Kernel_Id Kernel_Name Workgroup_Size "
    "LDS_Block_Size Scratch_Size VGPR_Count Accum_VGPR_Count SGPR_Count Counter_Name Counter_Value Start_Timestamp "
    "End_Timestamp"
)
ADD = "add(int, float*)"


def line(cells):
    return ",".join(f'"{cell}"' if isinstance(cell, str) else str(cell) for cell in cells) + "\n"


def dispatch(number=1, name=ADD, start=1000, end=3000, items=(1000, 4, 1), block=(256, 1, 1), **more):
    """What a row says, by column."""
    row = {
        "Kind": "KERNEL_DISPATCH",
        "Agent_Id": "Agent 4",
        "Queue_Id": 1,
        "Stream_Id": 2,
        "Process_Id": 4242,
        "Thread_Id": 100,
        "Dispatch_Id": number,
        "Kernel_Id": 12,
        "Kernel_Name": name,
        "Correlation_Id": number + 7,
        "Start_Timestamp": start,
        "End_Timestamp": end,
        "LDS_Block_Size": 512,
        "Scratch_Size": 16,
        "VGPR_Count": 24,
        "Accum_VGPR_Count": 8,
        "SGPR_Count": 32,
        "Grid_Size": items[0] * items[1] * items[2],
        "Workgroup_Size": block[0] * block[1] * block[2],
    }
    for at, axis in enumerate("XYZ"):
        row[f"Workgroup_Size_{axis}"], row[f"Grid_Size_{axis}"] = block[at], items[at]
    return {**row, **more}


def trace(*rows, columns=TRACE):
    return line(columns) + "".join(line(row[name] for name in columns) for row in rows)


def counted(counters, number=1, **more):
    """Rows of a dispatch, one for each counter."""
    base = dispatch(number, **more)
    return [{**base, "Counter_Name": name, "Counter_Value": value} for name, value in counters]


def counters(*rows, columns=COUNTERS):
    return trace(*rows, columns=columns)
