"""The compiled kernels; everything else about the package is in pyproject.toml.

They are built against Python's stable interface (abi3), so that one wheel serves every Python from 3.11 on; that costs
no speed (`python -m benchmarks.kernels`). A Python without a global lock has no such interface yet and gets a wheel of
its own, as does whoever sets FAULTLINES_ABI3=0. The kernels take typed memoryviews only: no NumPy headers are needed.
"""

import os
import sysconfig

from setuptools import Extension, setup

ABI3 = os.environ.get("FAULTLINES_ABI3") != "0" and not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "faultlines.core.kernels",
            ["src/faultlines/core/kernels.pyx"],
            extra_compile_args=[] if os.name == "nt" else ["-O3", "-fno-math-errno", "-fno-trapping-math"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if ABI3 else [],
            py_limited_api=ABI3,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if ABI3 else {},
)
