// The three streams that every program has, also where whoever started it closed some of them.
#pragma once

namespace llorch::base {

// Opens what is closed of descriptors 0, 1 and 2, so that no file or socket that is opened later
// gets one of these numbers: a log line on stderr would go into it, and a question to a person
// would be read from it. The first thing that a program does. What was closed stays of no use:
// stdin is at its end, writing to stdout fails (the program says so, as with a closed one), stderr
// forgets.
void hold_standard_streams();

}  // namespace llorch::base
