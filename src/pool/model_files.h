// This pool's verified files for its neighbours: a manifest with every hash, and the bytes by
// ranges.
#pragma once

#include <filesystem>

#include "catalog/model_catalog.h"
#include "http/router.h"

namespace llorch::pool {

// GET /v2/models/{id}/manifest: {"id","ref","revision","files":[…]}, each file as
// catalog::FileChunks; 404 for a model that is not here whole or was never verified, 409 when a
// file has changed since.
// GET /v2/models/{id}/files/{n}: the n-th file of the manifest, whole or one range; its ETag is its
// SHA-256. No path from the wire touches the file system.
//
// Files are read on two threads that the routes own. Who may ask is the server's own business: its
// bearer token.
void add_model_file_routes(http::Router& router, const catalog::ModelCatalog& catalog,
                           std::filesystem::path chunks_folder);

}  // namespace llorch::pool
