// Implements SharingService: quotas, reservations, and who uses the pool.
#pragma once

#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "trainyard/v1/sharing.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class SharingServiceImpl : public v1::SharingService::CallbackService {
 public:
  explicit SharingServiceImpl(Services& services);

  TY_UNARY_RPC(SharingService, SetQuota, SetQuotaRequest, Quota);
  TY_UNARY_RPC(SharingService, ListQuotas, ListQuotasRequest, ListQuotasResponse);
  TY_UNARY_RPC(SharingService, DeleteQuota, DeleteQuotaRequest, DeleteQuotaResponse);
  TY_UNARY_RPC(SharingService, CreateReservation, CreateReservationRequest, Reservation);
  TY_UNARY_RPC(SharingService, ListReservations, ListReservationsRequest, ListReservationsResponse);
  TY_UNARY_RPC(SharingService, DeleteReservation, DeleteReservationRequest,
               DeleteReservationResponse);
  TY_UNARY_RPC(SharingService, ListShares, ListSharesRequest, ListSharesResponse);
  TY_UNARY_RPC(SharingService, ListUsage, ListUsageRequest, ListUsageResponse);

 private:
  Services& services_;
};

}  // namespace trainyard::rpc
