# Build options and the flags every target of ours gets.
option(LLORCH_BUILD_TESTS "Build the tests" ON)
option(LLORCH_WERROR "Warnings are errors" ON)
option(LLORCH_DCHECK "Keep DCHECK on whatever the build type" OFF)
option(LLORCH_FUZZ "Build libFuzzer targets (clang only)" OFF)
option(LLORCH_UNITY "Compile many sources at once: for builds of everything, not for daily work" OFF)
option(LLORCH_STATIC "Programs that run where our libraries are not installed" OFF)
set(LLORCH_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize=VALUE (address,undefined or thread)")
set(LLORCH_CUDA AUTO CACHE STRING "CUDA backend: AUTO (when nvcc is found), ON or OFF")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# One interface target carries warnings and sanitizers to our own code only, never to a dependency.
add_library(llorch_flags INTERFACE)
set(llorch_warnings -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion
    -Wold-style-cast -Wnon-virtual-dtor
    -Wno-missing-field-initializers)  # designated initialisers name what differs from the defaults
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 at -O3 sees overlaps in "literal" + std::string and overflows in vector::insert.
  list(APPEND llorch_warnings -Wno-restrict -Wno-stringop-overflow)
endif()
target_compile_options(llorch_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${llorch_warnings} -Wpedantic>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${LLORCH_WERROR}>>:-Werror>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wthread-safety>)
# The host half of CUDA code. The code that nvcc puts around it is not pedantic, casts the old way, and writes sizes of
# arrays that depend on an int parameter of a template as conversions of their sign.
list(REMOVE_ITEM llorch_warnings -Wold-style-cast -Wsign-conversion)
string(REPLACE ";" "," llorch_warnings_list "${llorch_warnings}")
target_compile_options(llorch_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${llorch_warnings_list}>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${LLORCH_WERROR}>>:-Xcompiler=-Werror -Werror=all-warnings>)
target_compile_definitions(llorch_flags INTERFACE
  $<$<OR:$<BOOL:${LLORCH_DCHECK}>,$<CONFIG:Debug>>:LLORCH_DCHECK_ENABLED=1>)
if(LLORCH_SANITIZE)
  # Global, so that third-party templates compiled into our objects are watched too.
  add_compile_options(-fsanitize=${LLORCH_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LLORCH_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # gcc's names, by which sources tell what a sanitizer cannot do; clang 14 has none of its own.
    if(LLORCH_SANITIZE MATCHES "address")
      add_compile_definitions(__SANITIZE_ADDRESS__=1)
    elseif(LLORCH_SANITIZE MATCHES "thread")
      add_compile_definitions(__SANITIZE_THREAD__=1)
    endif()
  endif()
  if(LLORCH_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options(-fno-sanitize=function)  # clang 14 cannot assemble it into a split coroutine
  endif()
  if(LLORCH_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)  # Boost.Asio uses fences, which gcc's TSan only warns about.
  endif()
endif()
if(LLORCH_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
