#include "pool/pool_manager.h"
