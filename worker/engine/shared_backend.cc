// Lends one backend to several owners.
#include "worker/engine/shared_backend.h"

#include <memory>
#include <mutex>
#include <utility>

#include "common/base/status_macros.h"

namespace trainyard::engine {
namespace {

class LentBackend final : public Backend {
 public:
  explicit LentBackend(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

  absl::string_view name() const override { return backend_->name(); }
  Precision auto_precision() const override { return backend_->auto_precision(); }
  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Graph& model,
                                                      const OptimizerSpec& optimizer,
                                                      const CompileOptions& options) override {
    return backend_->Compile(model, optimizer, options);
  }
  absl::StatusOr<CompilePlan> Plan(const Graph& model, const OptimizerSpec& optimizer,
                                   const CompileOptions& options) override {
    return backend_->Plan(model, optimizer, options);
  }

 private:
  const std::shared_ptr<Backend> backend_;
};

class Lender {
 public:
  explicit Lender(BackendFactory make) : make_(std::move(make)) {}

  absl::StatusOr<std::unique_ptr<Backend>> Lend() {
    const std::lock_guard lock(mutex_);
    if (backend_ == nullptr) {
      TY_ASSIGN_OR_RETURN(backend_, make_());
    }
    return std::make_unique<LentBackend>(backend_);
  }

 private:
  const BackendFactory make_;
  std::mutex mutex_;
  std::shared_ptr<Backend> backend_;
};

}  // namespace

BackendFactory ShareBackend(BackendFactory make) {
  const auto lender = std::make_shared<Lender>(std::move(make));
  return [lender] { return lender->Lend(); };
}

}  // namespace trainyard::engine
