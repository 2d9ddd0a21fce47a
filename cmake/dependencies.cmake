# Third-party libraries, all from the system's packages (scripts/setup.sh). Nothing is vendored.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)  # headers only, in base/settings.cc
pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)
set(CURL_NO_CURL_CMAKE ON)  # its own file names the libraries where they were when it was built
find_package(CURL REQUIRED)
find_package(LibArchive REQUIRED)
find_package(Boost 1.81 REQUIRED)  # headers only: Asio, Beast and JSON are compiled into our own objects
if(LLORCH_BUILD_TESTS)
  if(CMAKE_CROSSCOMPILING)  # from the source that its package brings along
    add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  else()
    find_package(GTest REQUIRED)
    find_package(benchmark REQUIRED)
  endif()
  include(GoogleTest)
endif()

# For programs that bring their libraries with them (portable_toolchain.cmake): a static library does not name what it needs.
if(LLORCH_SYSROOT)
  find_package(ZLIB REQUIRED)
  target_link_libraries(CURL::libcurl INTERFACE OpenSSL::SSL)
  target_link_libraries(LibArchive::LibArchive INTERFACE ZLIB::ZLIB)
endif()

# Debian has no static fmt, spdlog or Highway: the first two are compiled in from their headers and their libraries
# then dropped as unneeded; Highway's, one small file, lies beside the programs and the tests and is found there.
if(LLORCH_STATIC)
  set_target_properties(fmt::fmt PROPERTIES INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY)
  set_target_properties(spdlog::spdlog PROPERTIES INTERFACE_COMPILE_DEFINITIONS SPDLOG_FMT_EXTERNAL)
  add_link_options(-static-libstdc++ -static-libgcc -Wl,--as-needed)
  set(CMAKE_BUILD_RPATH $ORIGIN)
  find_library(LLORCH_HWY_SHARED libhwy.so.1 REQUIRED)
  file(REAL_PATH ${LLORCH_HWY_SHARED} hwy_file)
  foreach(folder bin tests)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/${folder})
    file(COPY_FILE ${hwy_file} ${CMAKE_BINARY_DIR}/${folder}/libhwy.so.1 ONLY_IF_DIFFERENT)
  endforeach()
endif()

# CUDA: AUTO follows the presence of nvcc, ON insists.
set(LLORCH_WITH_CUDA OFF)
if(NOT LLORCH_CUDA STREQUAL "OFF")
  find_program(LLORCH_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(LLORCH_NVCC)
    set(CMAKE_CUDA_COMPILER ${LLORCH_NVCC})
    # Machine code for every generation since Turing, and PTX for those to come. The preset `cuda` has Hopper's alone.
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90a-real 100-real 120-real 120-virtual CACHE STRING "CUDA targets")
    enable_language(CUDA)
    # CMake 3.25 does not know how nvcc is told C++20, and refuses CMAKE_CXX_STANDARD, which CUDA code inherits.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    find_package(CUDAToolkit REQUIRED)
    set(LLORCH_WITH_CUDA ON)
  elseif(LLORCH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LLORCH_CUDA=ON, but nvcc was not found on the PATH or in /usr/local/cuda/bin; "
                        "install the CUDA 13 toolkit or configure with -DLLORCH_CUDA=OFF")
  endif()
endif()
message(STATUS "CUDA backend: ${LLORCH_WITH_CUDA}")
