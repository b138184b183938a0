// Implements SharingService: quotas, reservations, and who uses the pool.
#pragma once

#include "server/rpc/services.h"
#include "trainyard/v1/sharing.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class SharingServiceImpl : public v1::SharingService::CallbackService {
 public:
  explicit SharingServiceImpl(Services& services) : services_(services) {}

  grpc::ServerUnaryReactor* SetQuota(grpc::CallbackServerContext* context,
                                     const v1::SetQuotaRequest* request,
                                     v1::Quota* response) override;
  grpc::ServerUnaryReactor* ListQuotas(grpc::CallbackServerContext* context,
                                       const v1::ListQuotasRequest* request,
                                       v1::ListQuotasResponse* response) override;
  grpc::ServerUnaryReactor* DeleteQuota(grpc::CallbackServerContext* context,
                                        const v1::DeleteQuotaRequest* request,
                                        v1::DeleteQuotaResponse* response) override;
  grpc::ServerUnaryReactor* CreateReservation(grpc::CallbackServerContext* context,
                                              const v1::CreateReservationRequest* request,
                                              v1::Reservation* response) override;
  grpc::ServerUnaryReactor* ListReservations(grpc::CallbackServerContext* context,
                                             const v1::ListReservationsRequest* request,
                                             v1::ListReservationsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteReservation(grpc::CallbackServerContext* context,
                                              const v1::DeleteReservationRequest* request,
                                              v1::DeleteReservationResponse* response) override;
  grpc::ServerUnaryReactor* ListShares(grpc::CallbackServerContext* context,
                                       const v1::ListSharesRequest* request,
                                       v1::ListSharesResponse* response) override;

 private:
  Services& services_;
};

}  // namespace trainyard::rpc
