// Stacks of another process, by libdw: it stops the threads with ptrace, one after the other, reads
// their frames by the unwind tables of the program, and lets them go on. No debug information is
// needed, only symbols.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>

namespace trainyard::supervisor {

// Prints, the main thread first and each line flushed, so that a reader that is out of patience
// has what there was:
//   thread 4711 (trainyard-trai)
//     #0 poll (libc.so.6)
//     #1 trainyard::trainer::TrainLoop::Step() (trainyard-trainer)
// False where nothing could be read, with the reason in `error`.
bool PrintStacks(pid_t pid, std::FILE* out, std::string& error);

}  // namespace trainyard::supervisor
