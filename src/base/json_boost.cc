// Boost.JSON itself, compiled once; separate because it is slow to compile.
#include <boost/json/src.hpp>
