# llorch_library(name SOURCES ... HEADERS ... [LIBS ...])
#   A module: static library llorch_<name> rooted at src/. Its dependencies on other modules are read
#   from src/layers.txt, so the link list cannot differ from the dependency table. HEADERS are its
#   public headers; each is also compiled alone. LIBS are third-party libraries.
#
# llorch_test(name SOURCES ... [MODULES ...] [LIBS ...] [LABELS ...])
#   A gtest program registered with CTest; every TEST becomes one CTest test.
#
# llorch_program(name SOURCES ... MODULES ...)
#   A program in build/<preset>/bin.
#
# llorch_fuzzer(name_fuzz [SOURCE file] [CORPUS dir] MODULES ...)
#   Without more words name_fuzz.cc and fuzz_corpus/name. A libFuzzer target where LLORCH_FUZZ is on; the same source with a
#   replaying main as a test elsewhere.

file(STRINGS ${CMAKE_SOURCE_DIR}/src/layers.txt llorch_layers REGEX "^[a-z_]+:")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/layers.txt)
foreach(line IN LISTS llorch_layers)
  string(REGEX REPLACE "^([a-z_]+):.*" "\\1" module "${line}")
  string(REGEX REPLACE "^[a-z_]+:" "" deps "${line}")
  string(REGEX MATCHALL "[^ ]+" deps "${deps}")
  list(FILTER deps EXCLUDE REGEX "/")
  set(llorch_deps_${module} "${deps}")
endforeach()

function(llorch_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;HEADERS;LIBS" ${ARGN})
  if(NOT DEFINED llorch_deps_${name})
    message(FATAL_ERROR "module '${name}' has no line in src/layers.txt")
  endif()
  add_library(llorch_${name} STATIC ${arg_SOURCES})
  target_sources(llorch_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR}/src
                                        FILES ${arg_HEADERS})
  target_include_directories(llorch_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  foreach(dep IN LISTS llorch_deps_${name})
    if(EXISTS ${CMAKE_SOURCE_DIR}/src/${dep}/CMakeLists.txt)
      target_link_libraries(llorch_${name} PUBLIC llorch_${dep})
    endif()
  endforeach()
  target_link_libraries(llorch_${name} PUBLIC ${arg_LIBS} Threads::Threads PRIVATE llorch_flags)
  if(LLORCH_UNITY)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL llorch_unity llorch_${name})")  # when its sources have their own options
  endif()
endfunction()

# Sources that do not get in each other's way are compiled as one: a third of the time, where nobody will compile just one of them again.
# Those with options of their own stay alone.
find_package(Python3 COMPONENTS Interpreter)
function(llorch_unity target)
  get_target_property(sources ${target} SOURCES)
  set(plain)
  foreach(source IN LISTS sources)
    set(own "")
    foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES)
      get_source_file_property(value ${source} ${property})
      if(value)
        string(APPEND own "${value}")
      endif()
    endforeach()
    if(source MATCHES "^[^/.].*\\.cc$" AND own STREQUAL "")
      list(APPEND plain ${source})
    endif()
  endforeach()
  file(RELATIVE_PATH prefix ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "^(src|tests)/" "" prefix ${prefix})  # the folders where headers are looked for
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/unity_groups.py 12 ${CMAKE_CURRENT_BINARY_DIR}/unity ${target} ${prefix} ${plain}
                  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE compiled COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" compiled "${compiled}")
  list(REMOVE_ITEM sources ${plain})
  get_property(watched DIRECTORY PROPERTY CMAKE_CONFIGURE_DEPENDS)
  list(APPEND watched ${plain} ${CMAKE_SOURCE_DIR}/cmake/unity_groups.py)
  list(REMOVE_DUPLICATES watched)  # two tests of a folder may share a source
  set_property(DIRECTORY PROPERTY CMAKE_CONFIGURE_DEPENDS ${watched})
  set_property(TARGET ${target} PROPERTY SOURCES ${sources} ${compiled})
endfunction()

function(llorch_test name)
  if(NOT LLORCH_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;MODULES;LIBS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  # The catalog looks into weight files through the program, as a child of its own.
  foreach(module catalog pool cli)
    if(module IN_LIST arg_MODULES)
      add_dependencies(${name} llorch-pool)
    endif()
  endforeach()
  list(TRANSFORM arg_MODULES PREPEND llorch_)
  target_link_libraries(${name} PRIVATE ${arg_MODULES} ${arg_LIBS} llorch_test_support
                                        GTest::gmock GTest::gtest_main llorch_flags)
  # Takes 55 % of the time that -O2 -g takes to compile gtest's macros. gcc follows fewer paths so, and would warn of more
  # values that it cannot see being set. A sanitizer build has such flags of its own.
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT LLORCH_SANITIZE)
    target_compile_options(${name} PRIVATE -O1 -g1 $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
  # Tests get clang's warnings but not clang-tidy, which trips over gtest's macros.
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests CXX_CLANG_TIDY "")
  if(LLORCH_UNITY)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL llorch_unity ${name})")
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                       PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 300)
endfunction()

function(llorch_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;MODULES" ${ARGN})
  if(LLORCH_SANITIZE)
    list(APPEND arg_SOURCES ${CMAKE_SOURCE_DIR}/cmake/sanitizer_defaults.cc)
  endif()
  add_executable(${name} ${arg_SOURCES})
  list(TRANSFORM arg_MODULES PREPEND llorch_)
  target_link_libraries(${name} PRIVATE ${arg_MODULES} llorch_flags)
endfunction()

if(LLORCH_FUZZ)
  add_custom_target(fuzzers)  # all of them and nothing else
endif()

function(llorch_fuzzer name)
  cmake_parse_arguments(arg "" "SOURCE;CORPUS" "MODULES" ${ARGN})
  if(NOT arg_SOURCE)
    set(arg_SOURCE ${name}.cc)
  endif()
  if(NOT arg_CORPUS)
    string(REGEX REPLACE "_fuzz\\.cc$" "" subject ${arg_SOURCE})
    set(arg_CORPUS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_corpus/${subject})
  endif()
  list(TRANSFORM arg_MODULES PREPEND llorch_)
  if(LLORCH_FUZZ)
    add_executable(${name} ${arg_SOURCE})
    target_link_libraries(${name} PRIVATE ${arg_MODULES} llorch_flags)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    add_dependencies(fuzzers ${name})
  elseif(LLORCH_BUILD_TESTS)
    add_executable(${name} ${arg_SOURCE} ${CMAKE_SOURCE_DIR}/tests/support/fuzz_replay_main.cc)
    target_link_libraries(${name} PRIVATE ${arg_MODULES} llorch_flags)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests CXX_CLANG_TIDY "")
    add_test(NAME ${name}.corpus COMMAND ${name} ${arg_CORPUS})
    set_tests_properties(${name}.corpus PROPERTIES LABELS fuzz TIMEOUT 300)
  endif()
endfunction()
