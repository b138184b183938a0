// Implements GetLineage: walks from a job to the jobs from which it descends and those that descend
// from it, the nearest first.
#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "server/codec/submission.h"
#include "server/core/yard/deletion.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/gate.h"
#include "server/rpc/job_service.h"
#include "server/rpc/limits.h"
#include "server/rpc/remarks.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

// A job from which another descends, and how.
struct Parent {
  JobId job;
  v1::LineageKind kind;
  int64_t step = 0;
};

std::vector<Parent> ParentsOf(const core::Submission& submission) {
  std::vector<Parent> parents;
  if (submission.verifies != JobId{}) {
    parents.push_back({submission.verifies, v1::LINEAGE_KIND_VERIFICATION});
  } else if (submission.cloned_from != JobId{}) {
    parents.push_back({submission.cloned_from, v1::LINEAGE_KIND_CLONE});
  }
  if (const auto& from = submission.parent_checkpoint; from.has_value()) {
    parents.push_back({from->job, v1::LINEAGE_KIND_FROM, from->step});
  }
  if (const auto& init = submission.init_checkpoint; init.has_value()) {
    parents.push_back({init->job, v1::LINEAGE_KIND_INIT, init->step});
  }
  return parents;
}

// Adds where the submission came from besides jobs of this server.
void AddOrigins(const core::Submission& submission, v1::LineageNode& node) {
  v1::Job options;
  codec::SetOptions(submission, options);
  const v1::Provenance& provenance = options.provenance();
  const auto add = [&node](v1::LineageKind kind, const std::string& parent) {
    if (parent.empty()) return;
    v1::LineageLink* link = node.add_links();
    link->set_kind(kind);
    link->set_parent(parent);
  };
  add(v1::LINEAGE_KIND_SAVED_SPEC, provenance.saved_spec());
  add(v1::LINEAGE_KIND_SWEEP, provenance.trial());
  add(v1::LINEAGE_KIND_IMPORT, provenance.imported().job());
}

// Submissions of deleted jobs that stayed because jobs were cloned from them.
using KeptSubmissions = std::map<JobId, core::Submission>;

// Finds the relatives of a job for a caller.
class Walk {
 public:
  Walk(const Services& services, const access::Caller& caller, KeptSubmissions kept)
      : services_(services), caller_(caller), kept_(std::move(kept)) {
    // No index leads from a job to those that continue with its checkpoints.
    services_.board.ListJobs(0, std::numeric_limits<size_t>::max(),
                             [this](const runtime::JobView& view) {
                               for (const Parent& parent : ParentsOf(*view.record.submission)) {
                                 children_[parent.job].insert(view.record.id);
                               }
                               return false;
                             });
    for (const auto& [id, submission] : kept_) {
      for (const Parent& parent : ParentsOf(submission)) children_[parent.job].insert(id);
    }
  }

  v1::Lineage From(JobId start, size_t max_jobs) {
    v1::Lineage lineage;
    std::deque<JobId> next = {start};
    std::set<JobId> seen = {start};
    std::map<JobId, v1::LineageNode> nodes;
    while (!next.empty()) {
      if (nodes.size() == max_jobs) {
        lineage.set_is_cut(true);
        break;
      }
      const JobId id = next.front();
      next.pop_front();
      nodes[id] = NodeOf(id);
      std::vector<JobId> near;
      if (const core::Submission* submission = SubmissionOf(id); submission != nullptr) {
        for (const Parent& parent : ParentsOf(*submission)) near.push_back(parent.job);
      }
      if (const auto found = children_.find(id); found != children_.end()) {
        near.insert(near.end(), found->second.begin(), found->second.end());
      }
      for (const JobId relative : near) {
        if (Sees(relative) && seen.insert(relative).second) next.push_back(relative);
      }
    }
    for (auto& [id, node] : nodes) *lineage.add_nodes() = std::move(node);
    return lineage;
  }

 private:
  // Returns null for a job of which nothing is known any more.
  const core::Submission* SubmissionOf(JobId id) {
    if (const auto view = services_.board.FindJob(id); view != nullptr) {
      return view->record.submission.get();
    }
    auto kept = kept_.upper_bound(id);
    if (kept == kept_.begin()) return nullptr;
    --kept;
    const int64_t jobs = std::max(kept->second.array_size, 1);
    return id.value < kept->first.value + jobs ? &kept->second : nullptr;
  }

  // The name of a job of which nothing is known stands in those that descend from it.
  bool Sees(JobId id) {
    const core::Submission* submission = SubmissionOf(id);
    return submission == nullptr ||
           services_.directory.MaySee(caller_, submission->user, submission->project);
  }

  v1::LineageNode NodeOf(JobId id) {
    v1::LineageNode node;
    node.set_name(JobName(id));
    const core::Submission* submission = SubmissionOf(id);
    if (submission == nullptr) return node;
    for (const Parent& parent : ParentsOf(*submission)) {
      if (!Sees(parent.job)) continue;
      v1::LineageLink* link = node.add_links();
      link->set_kind(parent.kind);
      link->set_parent(JobName(parent.job));
      link->set_step(parent.step);
    }
    AddOrigins(*submission, node);
    const auto view = services_.board.FindJob(id);
    if (view == nullptr) return node;
    const v1::Job job = ShownJob(services_, *view);
    node.set_title(job.resolved_spec().name());
    node.set_user(job.user());
    node.set_state(job.state());
    *node.mutable_create_time() = job.create_time();
    *node.mutable_final_metrics() = job.final_metrics();
    if (job.has_verified()) *node.mutable_verified() = job.verified();
    return node;
  }

  const Services& services_;
  const access::Caller& caller_;
  const KeptSubmissions kept_;
  std::map<JobId, std::set<JobId>> children_;
};

}  // namespace

grpc::ServerUnaryReactor* JobServiceImpl::GetLineage(const access::Caller& caller,
                                                     grpc::CallbackServerContext* context,
                                                     const v1::GetLineageRequest* request,
                                                     v1::Lineage* response) {
  RequestCheck check;
  const JobId job = check.Job("name", request->name());
  const int max_jobs =
      check.PageSize("max_jobs", request->max_jobs(), kRelativesDefault, kRelativesMax);
  if (!check.ok()) return Refused(context, check);
  const auto view = FindJob(services_.board, job);
  if (!view.ok()) return Finished(context, view.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services_.runtime.Read(
      [this, reactor, response, caller, job, max_jobs](absl::StatusOr<const core::Yard*> yard) {
        if (!yard.ok()) return reactor->Finish(ToGrpcStatus(yard.status()));
        const auto& kept = (*yard)->snapshot().kept_submissions;
        const absl::Status posted =
            services_.executor.TryPost([this, reactor, response, caller, job, max_jobs,
                                        kept = KeptSubmissions(kept.begin(), kept.end())] {
              *response = Walk(services_, caller, kept).From(job, static_cast<size_t>(max_jobs));
              reactor->Finish(grpc::Status::OK);
            });
        if (!posted.ok()) reactor->Finish(ToGrpcStatus(posted));
      });
  return reactor;
}

}  // namespace trainyard::rpc
