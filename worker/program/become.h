// Lets this program become another one, at the two ends of a sandbox.
#pragma once

namespace trainyard::program {

// Executes the words that follow with signals that ask to end ignored. They go to all processes of
// a rank, and what keeps up the sandbox must not end before the program in it.
inline constexpr char kShieldFlag[] = "--shield";
// Makes the file that follows, which shows that the sandbox stands, and executes the words after
// it, with the usual effect of all signals.
inline constexpr char kInsideFlag[] = "--inside";

// Does one of these, if argv[1] is its flag. Then it returns only if the program cannot be
// executed, and has said so: 127 if it was not found, else 126. Returns -1 for other flags.
int BecomeProgram(int argc, char** argv);

}  // namespace trainyard::program
