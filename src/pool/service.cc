#include "pool/service.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <utility>

#include "api/answers.h"
#include "catalog/known_models.h"

namespace llorch::pool {
CatalogReader::Stamp CatalogReader::stamp_of_file() const {
  struct stat info {};
  if (::stat(catalog_.file().c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_size,
          std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

Result<std::shared_ptr<const catalog::CatalogContent>> CatalogReader::read() {
  // The stamp is taken first: a change while we read is seen by the next call.
  const Stamp stamp = stamp_of_file();
  const base::MutexLock lock(mutex_);
  if (stamp_ == stamp) return content_;
  Result<catalog::CatalogContent> content = catalog_.read();
  if (!content.ok()) {
    stamp_.reset();
    return content.error();
  }
  content_ = std::make_shared<const catalog::CatalogContent>(content.take());
  stamp_ = stamp;
  return content_;
}

Service::Service(PoolServices all, const RouteSettings& route_settings)
    : pool(std::move(all)),
      settings(route_settings),
      catalog(catalog::ModelCatalog(pool.home.catalog_file())),
      known_models(catalog::known_models()) {}

http::Task<Status> run_blocking(ServicePtr service, BlockingTask task, const http::Request& request,
                                http::Responder& responder) {
  std::function<Result<http::Response>()> work = [service, task, request] {
    return task(*service, request);
  };
  Result<http::Response> response = co_await service->pool.threads.run(std::move(work));
  if (!response.ok()) co_return response.error();
  co_return co_await responder.send(response.take());
}

const std::string& path_param(const http::Request& request, const std::string& name) {
  const auto found = request.path_params.find(name);
  CHECK(found != request.path_params.end(), "the route has no parameter of that name");
  return found->second;
}

}  // namespace llorch::pool
