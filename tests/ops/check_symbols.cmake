# cmake -DNM=… -DLIBRARY=… -DNAMESPACE=… -DTABLE=… -P check_symbols.cmake
# The library of an instruction-set level may define its table and functions of its own namespace only. An inline
# function of a header, compiled for AVX-512, could otherwise become the copy that the whole program uses.
execute_process(COMMAND ${NM} --demangle --defined-only --extern-only ${LIBRARY}
                OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[0-9a-f]+ [A-Za-z] [^\n]+" lines "${symbols}")
list(LENGTH lines count)
if(count LESS 10)
  message(FATAL_ERROR "${LIBRARY}: only ${count} symbols found, nothing was checked")
endif()
foreach(line IN LISTS lines)
  if(NOT line MATCHES " T dovetail::ops::${NAMESPACE}::" AND NOT line MATCHES " [VR] ${TABLE}$")
    message(SEND_ERROR "${LIBRARY} defines a symbol that other code may pick up: ${line}")
  endif()
endforeach()
