# Programs that need nothing of a machine but Linux and glibc >= 2.31. LLORCH_SYSROOT is the folder that
# scripts/portable_sysroot.sh made, LLORCH_TRIPLE says for which machine: x86_64-linux-gnu or aarch64-linux-gnu.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LLORCH_SYSROOT LLORCH_TRIPLE)
if(NOT IS_DIRECTORY "${LLORCH_SYSROOT}" OR NOT LLORCH_TRIPLE)
  message(FATAL_ERROR "LLORCH_SYSROOT is '${LLORCH_SYSROOT}', no folder: portable programs are built by scripts/build_portable.sh")
endif()
string(REGEX MATCH "^[^-]+" CMAKE_SYSTEM_PROCESSOR ${LLORCH_TRIPLE})
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_C_COMPILER ${LLORCH_TRIPLE}-gcc)
set(CMAKE_CXX_COMPILER ${LLORCH_TRIPLE}-g++)
set(CMAKE_LIBRARY_ARCHITECTURE ${LLORCH_TRIPLE})

# Headers: the compiler's own and the folder's, in the compiler's order. A cross compiler would look into its own, newer glibc
# before the folder.
set(CMAKE_SYSROOT ${LLORCH_SYSROOT})
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -xc++ -v -E /dev/null --sysroot=${LLORCH_SYSROOT}
                OUTPUT_QUIET ERROR_VARIABLE verbose COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE ".*<[.]+> search starts here:(.*)End of search list.*" "\\1" folders "${verbose}")
string(REGEX MATCHALL "/[^\n]+" folders "${folders}")
set(c_folders)
set(cxx_folders)
foreach(folder IN LISTS folders)
  file(REAL_PATH "${folder}" folder)
  if(folder MATCHES "/c\\+\\+/")
    list(APPEND cxx_folders ${folder})
  elseif(folder MATCHES "/lib/gcc")
    list(APPEND c_folders ${folder})
  endif()
endforeach()
list(APPEND c_folders ${LLORCH_SYSROOT}/usr/include/${LLORCH_TRIPLE} ${LLORCH_SYSROOT}/usr/include)
list(APPEND cxx_folders ${c_folders})
list(JOIN c_folders " -isystem " c_folders)
list(JOIN cxx_folders " -isystem " cxx_folders)
set(CMAKE_C_FLAGS_INIT "-nostdinc -isystem ${c_folders}")
set(CMAKE_CXX_FLAGS_INIT "-nostdinc -isystem ${cxx_folders}")

# Libraries: -B comes before the compiler's folders, which on this machine's own architecture are this machine's.
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-B${LLORCH_SYSROOT}/usr/lib/${LLORCH_TRIPLE} -L${LLORCH_SYSROOT}/usr/lib/${LLORCH_TRIPLE} \
-static-libstdc++ -static-libgcc -Wl,--as-needed")
endforeach()

# Packages: the folder's only, all static.
set(CMAKE_FIND_ROOT_PATH ${LLORCH_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${LLORCH_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${LLORCH_SYSROOT}/usr/lib/${LLORCH_TRIPLE}/pkgconfig:${LLORCH_SYSROOT}/usr/share/pkgconfig)
set(PKG_CONFIG_ARGN --static)
set(OPENSSL_USE_STATIC_LIBS ON)
