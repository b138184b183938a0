// Converts between the messages of AccessService and the records of rights.
#pragma once

#include "server/access/audit.h"
#include "server/access/directory.h"
#include "server/rpc/request.h"
#include "trainyard/v1/access.pb.h"

namespace trainyard::rpc {

v1::Role ToProto(access::Role role);
// Adds a violation if the role is none.
access::Role FromProto(v1::Role role, RequestCheck& check);
v1::User ToProto(const access::UserRecord& user);
v1::Project ToProto(const access::ProjectRecord& project);
v1::AuditEntry ToProto(const access::AuditRecord& record);

}  // namespace trainyard::rpc
