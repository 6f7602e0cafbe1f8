# The TVM FFI comes from the PyPI wheel apache-tvm-ffi, which scripts/setup.sh installs into .venv.
set(DOVETAIL_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "Python that has apache-tvm-ffi")
if(NOT EXISTS ${DOVETAIL_PYTHON})
  message(FATAL_ERROR "${DOVETAIL_PYTHON} not found: run scripts/setup.sh first, "
                      "or set DOVETAIL_PYTHON to a Python that has apache-tvm-ffi")
endif()
execute_process(COMMAND ${DOVETAIL_PYTHON} -m tvm_ffi.config --cmakedir
                OUTPUT_VARIABLE tvm_ffi_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(Python_EXECUTABLE ${DOVETAIL_PYTHON})
find_package(tvm_ffi CONFIG REQUIRED)
