# dovetail_library(<folder> SOURCES … [DEPENDS …]): the static library of one folder under src/.
# Its target is dovetail_<folder>; includes are written from src/ ("base/error.h").
function(dovetail_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(dovetail_${name} STATIC ${ARG_SOURCES})
  target_include_directories(dovetail_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(dovetail_${name} PUBLIC ${ARG_DEPENDS})
  dovetail_options(dovetail_${name})
endfunction()

# dovetail_options(<target>): warnings as errors and, when asked for, sanitizers.
function(dovetail_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -Wno-missing-field-initializers -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${target} PRIVATE -Wno-unknown-warning-option)  # some targets turn off warnings of GCC's
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)  # false alarms on std::string operator+, GCC bug 105651
  endif()
  if(DOVETAIL_SANITIZE)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)  # false alarms in sanitized std::regex
    endif()
    target_compile_options(${target} PUBLIC -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
  if(DOVETAIL_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# dovetail_cold(<target>): code without hot loops. GCC takes half as long for it when it is sanitized.
function(dovetail_cold target)
  if(DOVETAIL_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Og)
  endif()
endfunction()

# dovetail_test(<name> SOURCES … [DEPENDS …]): one GoogleTest program, one ctest entry per program.
# Tests run with tests/data as DOVETAIL_TEST_DATA.
function(dovetail_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE DOVETAIL_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  dovetail_options(${name})
  dovetail_cold(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endfunction()
