# cmake -DSRC=… -DMODULES=a,b -DTOOLS=… -DOUT=… -P build_hash.cmake
#   Writes the header with the hash of what a worker's ids depend on: the sources of these modules and the text TOOLS
#   (compiler, its version, flags). Paths are relative and tests are left out, so equal sources give equal hashes anywhere.
string(REPLACE "," ";" modules "${MODULES}")
set(text "${TOOLS}\n")
foreach(module IN LISTS modules)
  file(GLOB_RECURSE files RELATIVE ${SRC} ${SRC}/${module}/*.h ${SRC}/${module}/*.cc ${SRC}/${module}/*.cu
       ${SRC}/${module}/*.cuh ${SRC}/${module}/CMakeLists.txt)
  list(FILTER files EXCLUDE REGEX "(_test\\.cc|_fuzz\\.cc|/test_[^/]*|/conformance\\.h|/scripted_runner\\.h|_harness\\.h)$")
  list(SORT files)
  foreach(name IN LISTS files)
    file(SHA256 ${SRC}/${name} hash)
    string(APPEND text "${hash} ${name}\n")
  endforeach()
endforeach()
string(SHA256 hash "${text}")
string(SUBSTRING ${hash} 0 12 hash)
file(WRITE ${OUT} "#pragma once\n\nnamespace llorch::worker {\n\ninline constexpr const char* kBuildHash = \"${hash}\";\n\n}  // namespace llorch::worker\n")
