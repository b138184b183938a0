// Converts roles one by one, so that a new one does not compile before it has its number here.
#include "server/rpc/convert_access.h"

#include "server/rpc/convert.h"

namespace trainyard::rpc {

v1::Role ToProto(access::Role role) {
  switch (role) {
    case access::Role::kNone:
      return v1::ROLE_NONE;
    case access::Role::kViewer:
      return v1::ROLE_VIEWER;
    case access::Role::kSubmitter:
      return v1::ROLE_SUBMITTER;
    case access::Role::kOperator:
      return v1::ROLE_OPERATOR;
    case access::Role::kAdmin:
      return v1::ROLE_ADMIN;
  }
  return v1::ROLE_UNSPECIFIED;
}

access::Role FromProto(v1::Role role, RequestCheck& check) {
  switch (role) {
    case v1::ROLE_NONE:
      return access::Role::kNone;
    case v1::ROLE_VIEWER:
      return access::Role::kViewer;
    case v1::ROLE_SUBMITTER:
      return access::Role::kSubmitter;
    case v1::ROLE_OPERATOR:
      return access::Role::kOperator;
    case v1::ROLE_ADMIN:
      return access::Role::kAdmin;
    default:
      check.Add("role", "must be given: none, viewer, submitter, operator or admin");
      return access::Role::kNone;
  }
}

v1::User ToProto(const access::UserRecord& user) {
  v1::User proto;
  proto.set_name(user.name);
  proto.set_role(ToProto(user.role));
  proto.set_actor(user.actor);
  *proto.mutable_set_time() = ToTimestamp(user.set_time_us);
  return proto;
}

v1::Project ToProto(const access::ProjectRecord& project) {
  v1::Project proto;
  proto.set_name(project.name);
  proto.set_is_private(project.is_private);
  for (const std::string& member : project.members) proto.add_members(member);
  return proto;
}

v1::AuditEntry ToProto(const access::AuditRecord& record) {
  v1::AuditEntry proto;
  proto.set_sequence(record.sequence);
  *proto.mutable_time() = ToTimestamp(record.time_us);
  proto.set_user(record.user);
  proto.set_real_user(record.real_user);
  proto.set_address(record.address);
  proto.set_rpc(record.rpc);
  proto.set_resource(record.resource);
  proto.set_allowed(record.allowed);
  proto.set_reason(record.reason);
  return proto;
}

}  // namespace trainyard::rpc
