"""scripts/oci_image.py: every digest is true, the same input makes the same bytes, and what is inside is what was laid out.

    oci_image_test.py SOURCE_DIR
With small files in place of programs and of glibc: how an image is made does not depend on what they do.
"""
import gzip
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))
LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2", "libnss_files.so.2", "libnss_dns.so.2")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class OciImage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.pairs = []
        for name, machine, loader in (("x86-64", "x86_64", "lib64/ld-linux-x86-64.so.2"), ("arm64", "aarch64", "lib/ld-linux-aarch64.so.1")):
            dist, sysroot = self.folder / name, self.folder / f"{name}-sysroot"
            write(dist / "manifest.json", json.dumps({"machine": machine, "version": "abc"}))
            write(dist / "PACKAGES", "libc6 2.31\n")
            for program in ("llorch", "llorch-pool", "llorch-cpud", "pool-managerd", "orchestratord", "llorch-bench"):
                write(dist / "bin" / program, f"{program} for {machine}")
            write(sysroot / loader, "loader")
            for library in LIBRARIES:
                write(sysroot / f"lib/{machine}-linux-gnu" / library, library)
            self.pairs.append(f"{dist}:{sysroot}")

    def make(self, name, pairs):
        out = self.folder / name
        done = subprocess.run([SOURCE / "scripts/oci_image.py", out, *pairs], capture_output=True, text=True)
        return out, done

    def read(self, out):
        with tarfile.open(out) as archive:
            return {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}

    def blob(self, files, descriptor):
        data = files["blobs/" + descriptor["digest"].replace(":", "/")]
        self.assertEqual(descriptor["digest"], "sha256:" + hashlib.sha256(data).hexdigest())
        self.assertEqual(descriptor["size"], len(data))
        return data

    def test_one_image_for_both_architectures(self):
        out, done = self.make("both.tar", self.pairs)
        self.assertEqual(done.returncode, 0, done.stderr)
        files = self.read(out)
        self.assertEqual(json.loads(files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        top = json.loads(files["index.json"])["manifests"]
        self.assertEqual(len(top), 1)
        manifests = json.loads(self.blob(files, top[0]))["manifests"]
        self.assertEqual([m["platform"]["architecture"] for m in manifests], ["amd64", "arm64"])
        seen = {"oci-layout", "index.json", "blobs/" + top[0]["digest"].replace(":", "/")}
        for descriptor, machine in zip(manifests, ("x86_64", "aarch64")):
            manifest = json.loads(self.blob(files, descriptor))
            config = json.loads(self.blob(files, manifest["config"]))
            layer = gzip.decompress(self.blob(files, manifest["layers"][0]))
            self.assertEqual(config["rootfs"]["diff_ids"], ["sha256:" + hashlib.sha256(layer).hexdigest()])
            self.assertEqual(config["architecture"], descriptor["platform"]["architecture"])
            self.assertNotIn(config["config"]["User"].split(":")[0], ("", "0", "root"))
            with tarfile.open(fileobj=io.BytesIO(layer)) as root:
                program = root.getmember("usr/bin/llorch")
                self.assertEqual((program.mode, program.uid), (0o755, 0))
                self.assertEqual(root.extractfile(program).read().decode(), f"llorch for {machine}")
                self.assertNotIn("usr/bin/llorch-bench", root.getnames(), "only what serves")
                self.assertEqual(root.extractfile(f"lib/{machine}-linux-gnu/libc.so.6").read(), b"libc.so.6")
                self.assertEqual(str(root.getmember("var/lib/llorch").uid), config["config"]["User"].split(":")[0])
                self.assertEqual(root.getmember("tmp").mode, 0o1777)
            seen |= {"blobs/" + d["digest"].replace(":", "/") for d in (descriptor, manifest["config"], manifest["layers"][0])}
        self.assertEqual(set(files), seen, "nothing in the archive is without a name in it")

    def test_one_architecture_is_named_by_the_index_itself(self):
        out, done = self.make("one.tar", self.pairs[:1])
        self.assertEqual(done.returncode, 0, done.stderr)
        files = self.read(out)
        manifest = json.loads(self.blob(files, json.loads(files["index.json"])["manifests"][0]))
        self.assertEqual(len(manifest["layers"]), 1)

    def test_the_same_input_makes_the_same_bytes(self):
        first, _ = self.make("first.tar", self.pairs)
        second, _ = self.make("second.tar", self.pairs)
        self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_what_is_missing_is_named(self):
        (self.folder / "arm64-sysroot/lib/aarch64-linux-gnu/libm.so.6").unlink()
        out, done = self.make("none.tar", self.pairs)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("libm.so.6", done.stderr)
        self.assertFalse(out.exists())
        _, done = self.make("none.tar", ["nothing"])
        self.assertIn("usage", done.stderr)


unittest.main()
