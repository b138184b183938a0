// Keeps explanations from offering what would be refused.
#pragma once

#include "server/core/yard/yard.h"

namespace trainyard::rpc {

// Returns a check of changes of this submission: the changed spec must be accepted by the rules of
// specs, and by the yard as a new submission. It borrows its arguments.
core::AcceptChange AcceptIfSubmittable(const core::Submission& submission, const core::Yard& yard,
                                       core::Now now);

}  // namespace trainyard::rpc
