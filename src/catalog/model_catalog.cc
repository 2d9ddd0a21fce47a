#include "catalog/model_catalog.h"
