// How many files and sockets this process may have open at the same time.
#pragma once

#include <cstddef>

namespace llorch::base {

// Raises the soft limit to the hard one (at most 65,536, which is more than we use and keeps
// programs that walk over all possible descriptors quick) and says what holds now. For the start of
// a program, before its threads. Processes that it starts inherit the raised limit; those are our
// own, and none of them uses select(2).
std::size_t raise_descriptor_limit();

// The connections that a server may hold when `reserve` descriptors are kept for everything else
// (files, children, questions to others), half of the limit where that is small. At most 8,192:
// memory has a bound too.
std::size_t connections_within(std::size_t limit, std::size_t reserve);

}  // namespace llorch::base
