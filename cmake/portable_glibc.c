// Three things that the static libraries of gcc 12 take from glibc 2.32 to 2.36, for programs that shall run with 2.31.
// scripts/portable_sysroot.sh puts them into libc_nonshared.a, the part of glibc that every program carries itself. They are
// hidden: a newer glibc's own stay what other libraries in the process get.
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

#pragma GCC visibility push(hidden)

// Whether libstdc++ may count references without atomic instructions. Never is always right.
char __libc_single_threaded = 0;

// What libgcc's unwinder asks: in which object an address lies and where that one's table of frames is. The layout is glibc
// 2.35's for machines without DLFO_STRUCT_HAS_EH_DBASE, which x86-64 and AArch64 are. The unwinder reads the table only.
struct dl_find_object {
  unsigned long long flags;
  void* map_start;
  void* map_end;
  struct link_map* link_map;  // null here
  void* eh_frame;
  unsigned long long reserved[7];
};

struct search {
  uintptr_t address;
  struct dl_find_object* found;
};

static int look_into(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  const struct search* search = data;
  uintptr_t start = UINTPTR_MAX, end = 0, frames = 0;
  int is_inside = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const uintptr_t at = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) frames = at;
    if (part->p_type != PT_LOAD) continue;
    if (at < start) start = at;
    if (at + part->p_memsz > end) end = at + part->p_memsz;
    if (search->address >= at && search->address - at < part->p_memsz) is_inside = 1;
  }
  if (!is_inside || frames == 0) return 0;
  *search->found = (struct dl_find_object){
      .map_start = (void*)start, .map_end = (void*)end, .eh_frame = (void*)frames};
  return 1;
}

int _dl_find_object(void* address, struct dl_find_object* found) {
  struct search search = {(uintptr_t)address, found};
  return dl_iterate_phdr(look_into, &search) == 1 ? 0 : -1;
}

// Weak: libbsd has one too.
__attribute__((weak)) uint32_t arc4random(void) {
  uint32_t bits;
  ssize_t got;
  do got = getrandom(&bits, sizeof bits, 0);
  while (got < 0 && errno == EINTR);
  if (got != sizeof bits) abort();
  return bits;
}

#pragma GCC visibility pop
