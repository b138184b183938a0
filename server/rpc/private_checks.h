// Checks what a spec needs that belongs to its submitter alone.
#pragma once

#include "server/rpc/request.h"
#include "server/rpc/services.h"

namespace trainyard::rpc {

// Adds violations for secrets that the caller does not have, and for addresses to which this server
// sends nothing.
void CheckSecretsAndNotify(const v1::JobSpec& resolved, const access::Caller& caller,
                           const Services& services, RequestCheck& check);

}  // namespace trainyard::rpc
