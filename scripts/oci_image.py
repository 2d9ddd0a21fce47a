#!/usr/bin/env python3
"""Makes an OCI image of portable programs, without a daemon and without a base image:

    scripts/oci_image.py OUT.tar DIST:SYSROOT [DIST:SYSROOT …]

DIST is what scripts/build_portable.sh made for one architecture, SYSROOT the folder of scripts/portable_sysroot.sh that it was built
against: the image has its glibc, the programs that serve, a user without rights and nothing else, no shell either. Several architectures become one
image for all of them. The same input makes the same bytes (SOURCE_DATE_EPOCH is the time inside). OUT.tar is an archive of OCI's image
layout: `podman load -i OUT.tar`, `skopeo copy oci-archive:OUT.tar docker://…`, `docker load -i OUT.tar` (25 or newer).
"""
import gzip
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile
import time

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
USER = 65532
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Tools for model files stay in the tarball: each brings its libraries along.
PROGRAMS = ("llorch", "llorch-pool", "llorch-cpud", "pool-managerd", "orchestratord")
# What programs load by themselves, and what glibc loads to look up names.
LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2", "libnss_files.so.2", "libnss_dns.so.2")
LOADERS = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
TEXTS = {
    "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\nllorch:x:{USER}:{USER}:llorch:/var/lib/llorch:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nllorch:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def fail(words):
    sys.exit(f"oci_image: {words}")


class Layer:
    """One tar of a file system, entry by entry in the order of names."""

    def __init__(self):
        self.entries = {}

    def add(self, path, data=None, mode=0o644, owner=0):
        for parent in list(pathlib.PurePosixPath(path).parents)[:-1]:
            self.entries.setdefault(str(parent), (None, 0o755, 0))
        self.entries[path] = (data, mode, owner)

    def tar(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for path, (data, mode, owner) in sorted(self.entries.items()):
                entry = tarfile.TarInfo(path)
                entry.mode, entry.uid, entry.gid, entry.mtime = mode, owner, owner, EPOCH
                if data is None:
                    entry.type = tarfile.DIRTYPE
                    archive.addfile(entry)
                else:
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
        return out.getvalue()


def lay_out(dist, sysroot, machine):
    layer = Layer()
    for name in PROGRAMS:
        layer.add(f"usr/bin/{name}", (dist / "bin" / name).read_bytes(), 0o755)
    folder = f"lib/{machine}-linux-gnu"
    for name in LIBRARIES:
        layer.add(f"{folder}/{name}", (sysroot / folder / name).read_bytes(), 0o755)
    layer.add(LOADERS[machine], (sysroot / LOADERS[machine]).read_bytes(), 0o755)
    for path, text in TEXTS.items():
        layer.add(path, text.encode())
    if CERTIFICATES.exists():
        layer.add("etc/ssl/certs/ca-certificates.crt", CERTIFICATES.read_bytes())
    layer.add("usr/share/doc/llorch/PACKAGES", (dist / "PACKAGES").read_bytes())
    layer.add("usr/share/doc/llorch/copyright", (pathlib.Path(__file__).parent.parent / "LICENSE").read_bytes())
    layer.add("tmp", None, 0o1777)
    layer.add("var/lib/llorch", None, 0o750, USER)
    return layer.tar()


class Image:
    def __init__(self):
        self.blobs = {}

    def add(self, kind, data, **more):
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data), **more}

    def add_json(self, kind, value, **more):
        return self.add(kind, json.dumps(value, sort_keys=True).encode(), **more)


def add_architecture(image, dist, sysroot):
    about = json.loads((dist / "manifest.json").read_text())
    machine = about["machine"]
    if machine not in ARCHITECTURES:
        fail(f"{dist}/manifest.json is for {machine!r}, expected one of {', '.join(ARCHITECTURES)}")
    platform = {"architecture": ARCHITECTURES[machine], "os": "linux"}
    tar = lay_out(dist, sysroot, machine)
    layer = image.add("layer.v1.tar+gzip", gzip.compress(tar, 9, mtime=0))
    config = image.add_json("config.v1+json", {
        **platform,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH)),
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/bin", "HOME=/var/lib/llorch", "LLORCH_HOME=/var/lib/llorch"],
            "Entrypoint": ["/usr/bin/llorch"],
            "Volumes": {"/var/lib/llorch": {}},
            "Labels": {"org.opencontainers.image.title": "llama-orch", "org.opencontainers.image.version": about["version"],
                       "org.opencontainers.image.licenses": "Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]},
    })
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [layer]}
    return image.add_json("manifest.v1+json", manifest, platform=platform)


def main(arguments):
    if len(arguments) < 2 or any(":" not in pair for pair in arguments[1:]):
        fail("usage: scripts/oci_image.py OUT.tar DIST:SYSROOT [DIST:SYSROOT …]")
    image = Image()
    entries = []
    for pair in arguments[1:]:
        dist, sysroot = (pathlib.Path(part) for part in pair.split(":"))
        try:
            entries.append(add_architecture(image, dist, sysroot))
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}; DIST comes from scripts/build_portable.sh, SYSROOT from scripts/portable_sysroot.sh")
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries}
    top = entries[0] if len(entries) == 1 else image.add_json("index.v1+json", index)
    top["annotations"] = {"org.opencontainers.image.ref.name": "llorch:latest"}
    files = {f"blobs/sha256/{digest}": data for digest, data in image.blobs.items()}
    files["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
    files["index.json"] = json.dumps({**index, "manifests": [top]}, sort_keys=True).encode()
    archive = Layer()
    for path, data in files.items():
        archive.add(path, data)
    out = pathlib.Path(arguments[0])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(archive.tar())
    print(f"{out}: {', '.join(e['platform']['architecture'] for e in entries)}, {out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
