// Gives the fields of jobs to expressions and orders: those that every job has, metrics, and all
// that stands in specs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/filter/expression.h"
#include "server/runtime/board.h"
#include "server/store/sqlite/remark_store.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::rpc {

// A job whose fields are read. It borrows what it is made of, and reads the spec once, when a field
// of it is asked for.
class FieldsOfJob {
 public:
  FieldsOfJob(const runtime::JobView& view, const store::Remarks* remarks, absl::Time now)
      : view_(view), remarks_(remarks), now_(now) {}

  const core::JobRecord& record() const { return view_.record; }
  const store::Remarks* remarks() const { return remarks_; }
  absl::Time now() const { return now_; }
  const v1::JobSpec& spec() const;

 private:
  const runtime::JobView& view_;
  const store::Remarks* remarks_;
  const absl::Time now_;
  mutable std::optional<v1::JobSpec> spec_;
};

// Knows how to read the fields that were asked for. The class is not thread-safe.
class JobFields {
 public:
  // Returns the type of a field, whose values can then be read. The error says what there is.
  absl::StatusOr<filter::FieldType> TypeOf(const std::string& field);
  // Returns the value of a field whose type was asked for.
  filter::Value ValueOf(const std::string& field, const FieldsOfJob& job) const;

 private:
  using Read = std::function<filter::Value(const FieldsOfJob&)>;

  std::map<std::string, Read> reads_;
};

}  // namespace trainyard::rpc
