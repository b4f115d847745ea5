"""What the server answers to those who upload, commit and tag."""

import base64
import json

from hub_double.repositories import PULL_REQUEST, Dataset, HubError, git_blob, is_lfs, sha256

GITATTRIBUTES = b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"
LFS = "application/vnd.git-lfs+json"


class Writing:
    """The half of a connection that changes what is stored."""

    _body = None

    def handle_one_request(self):
        """Begin anew: one connection serves many requests."""
        self._body = None
        super().handle_one_request()

    def body(self):
        """What was sent along, read once."""
        if self._body is None:
            self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return self._body

    def _writable(self, name):
        if self.token is None:
            raise HubError(401, "", "Invalid username or password.")
        return self.hub.readable(name, self.token)

    def _create(self, *, query):
        asked = json.loads(self.body())
        if self.token is None:
            raise HubError(401, "", "Invalid username or password.")
        name = f"{asked.get('organization') or 'somebody'}/{asked['name']}"
        url = f"{self.hub.url}/datasets/{name}"
        if name in self.hub.datasets:
            self.json({"error": "You already created this dataset repo", "url": url}, status=409)
            return
        private = asked.get("visibility") == "private" or bool(asked.get("private"))
        dataset = self.hub.datasets[name] = Dataset(private=private)
        dataset.add(name, {".gitattributes": GITATTRIBUTES}, None, "main")
        self.json({"url": url, "name": name})

    def _tag(self, name, revision, *, query):
        dataset = self._writable(name)
        tag = json.loads(self.body())["tag"]
        if tag in dataset.tags:
            raise HubError(409, "", "Tag reference exists already")
        dataset.tags[tag] = dataset.commit_of(revision)
        self.json({})

    def _validate_yaml(self, *, query):
        import yaml

        content = json.loads(self.body())["content"]
        errors = []
        if content.startswith("---\n"):
            try:
                front = yaml.safe_load(content[4:].partition("\n---")[0])
            except yaml.YAMLError as error:
                errors.append({"message": str(error)})
            else:
                if not isinstance(front, dict):
                    errors.append({"message": "The front matter should be an object."})
        self.json({"errors": errors, "warnings": []}, status=400 if errors else 200)

    def _preupload(self, name, revision, *, query):
        dataset = self._writable(name)
        asked = json.loads(self.body())["files"]
        if len(asked) > 256:
            raise HubError(413, "", "Too many files")
        held = dataset.commits[dataset.commit_of(revision)]
        self.json({"files": [_upload_mode(each["path"], held.get(each["path"])) for each in asked]})

    def _lfs_batch(self, name, *, query):
        self._writable(name)
        asked = json.loads(self.body())
        assert asked["operation"] == "upload"
        objects = [self._lfs_object(name, each["oid"], each["size"]) for each in asked["objects"]]
        self.json({"transfer": "basic", "objects": objects}, {"Content-Type": LFS})

    def _lfs_object(self, name, oid, size):
        if oid in self.hub.objects:
            return {"oid": oid, "size": size}
        upload = {"href": f"http://localhost:{self.hub.port}/upload/{oid}"}
        verify = {"href": f"{self.hub.url}/datasets/{name}.git/info/lfs/verify"}
        return {"oid": oid, "size": size, "actions": {"upload": upload, "verify": verify}}

    def _upload(self, oid, *, query):
        assert self.token is None, "a presigned address is asked without the token"
        if not self.hub.takes_upload():
            self.rfile.read(int(self.headers.get("Content-Length") or 0) // 2)
            self.close_connection = True
            return
        data = self.body()
        if sha256(data) != oid:
            raise HubError(400, "", "other bytes than were announced")
        self.hub.objects[oid] = data
        self.send(200, b"", {})

    def _verify(self, name, *, query):
        asked = json.loads(self.body())
        if len(self.hub.objects.get(asked["oid"], b"")) != asked["size"]:
            raise HubError(404, "EntryNotFound", "no such object")
        self.json({})

    def _commit(self, name, revision, *, query):
        dataset = self._writable(name)
        lines = [json.loads(line) for line in self.body().splitlines() if line]
        if (hook := self.hub.before_commit) is not None:
            self.hub.before_commit = None
            hook()
        header = lines[0]["value"]
        with self.hub.lock:
            head = dataset.commit_of(revision)
            if header.get("parentCommit", head) != head:
                raise HubError(
                    412, "", "A commit has happened since. Please refresh and try again."
                )
            files = self._changed(dict(dataset.commits[head]), lines[1:])
            number = sum(ref.startswith(PULL_REQUEST) for ref in dataset.refs) + 1
            ref = f"{PULL_REQUEST}{number}" if query.get("create_pr") else revision
            commit = dataset.add(name, files, None, ref)
        url = f"{self.hub.url}/datasets/{name}"
        made = {"success": True, "commitOid": commit, "commitUrl": f"{url}/commit/{commit}"}
        if query.get("create_pr"):
            made |= {"pullRequestUrl": f"{url}/discussions/{number}", "pullRequestNum": number}
        self.json(made)

    def _changed(self, files, lines):
        for line in lines:
            value = line["value"]
            path = value["path"]
            if line["key"] == "file":
                assert not is_lfs(path)
                files[path] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.hub.objects:
                    raise HubError(400, "", f"{path} was never uploaded")
                files[path] = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                if files.pop(path, None) is None:
                    raise HubError(404, "EntryNotFound", "A file with this name doesn't exist")
            else:
                raise HubError(400, "", f"The double knows no {line['key']}")
        return files


def _upload_mode(path, held):
    mode = {"path": path, "uploadMode": "lfs" if is_lfs(path) else "regular", "shouldIgnore": False}
    if held is not None:
        mode["oid"] = sha256(held) if is_lfs(path) else git_blob(held)
    return mode


Writing.ROUTES = (
    (("POST",), r"/api/repos/create", Writing._create),
    (("POST",), r"/api/validate-yaml", Writing._validate_yaml),
    (("POST",), r"/api/datasets/([^/]+/[^/]+)/preupload/([^/]+)", Writing._preupload),
    (("POST",), r"/api/datasets/([^/]+/[^/]+)/commit/([^/]+)", Writing._commit),
    (("POST",), r"/api/datasets/([^/]+/[^/]+)/tag/([^/]+)", Writing._tag),
    (("POST",), r"/datasets/([^/]+/[^/]+)\.git/info/lfs/objects/batch", Writing._lfs_batch),
    (("POST",), r"/datasets/([^/]+/[^/]+)\.git/info/lfs/verify", Writing._verify),
    (("PUT",), r"/upload/([0-9a-f]{64})", Writing._upload),
)
